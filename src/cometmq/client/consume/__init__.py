"""Consuming: push, pull and iterator consumers, and the members of a group that they are made of."""
