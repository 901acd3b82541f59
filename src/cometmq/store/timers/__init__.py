"""RocketMQ's timer files: wheel, log and progress."""
