"""Reading a store directory without a broker: dump and check."""
