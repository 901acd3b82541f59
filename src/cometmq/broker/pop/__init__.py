"""POP: the broker hands out messages one by one and keeps their progress."""
