"""Format `cometmq_store`: store directories, read without a broker."""
