"""JSON as Java's fastjson reads and writes it."""
