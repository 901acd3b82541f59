"""Format `cometmq`: a live cluster as source and sink."""
