"""Requests of operators: topics, groups, settings, queries, statistics, maintenance."""
