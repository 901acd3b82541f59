"""Lake topics: topics that are Iceberg tables. `commits` decides what is in one, `run` and `upkeep` do it."""
