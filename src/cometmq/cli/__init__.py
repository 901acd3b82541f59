"""The `cometmq` command: one module per sub command, loaded only when it is called."""
