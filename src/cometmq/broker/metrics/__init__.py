"""Metrics and health of a broker: read when somebody looks, at almost no cost otherwise."""
