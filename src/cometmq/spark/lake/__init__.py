"""Format `cometmq_archive`: an exactly-once Parquet lake of messages."""
