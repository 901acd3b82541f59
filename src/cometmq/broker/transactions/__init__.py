"""Transactions: half messages, their end, and the checks of those that nobody ends."""
