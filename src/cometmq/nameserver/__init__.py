"""The name server: which broker serves which topic, asked by everyone, told by the brokers."""
