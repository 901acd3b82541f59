"""What the commands share: arguments, connecting, output, exit codes."""
