"""The commit log: segments, appends, flush, recovery, retention."""
