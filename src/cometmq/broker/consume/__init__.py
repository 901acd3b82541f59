"""Consuming: sessions, pulls and long polling, offsets, locks, filters, retries."""
