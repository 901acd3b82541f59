"""Sending: the requests, what must be on disk before an ack, hooks, replies and fences."""
