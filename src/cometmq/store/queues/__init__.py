"""What is built from the log so that messages are found: consume queues and the key index, and reading by them."""
