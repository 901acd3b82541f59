"""What producers and consumers of a client share: connections, routes, heartbeats, identity."""
