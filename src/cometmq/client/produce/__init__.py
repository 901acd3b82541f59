"""Sending: producers, batches, queue selection, transactions, request-reply."""
