"""Counters, rates and the status report."""
