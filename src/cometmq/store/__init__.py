"""Messages on disk: one commit log for all topics, and the consume queues and key index built from it."""
