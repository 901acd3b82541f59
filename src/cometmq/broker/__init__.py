"""The broker: requests of clients, and the state they share."""
