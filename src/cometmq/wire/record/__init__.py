"""The stored message: its record in the commit log, its properties, ids and flags, and the readers of many records."""
