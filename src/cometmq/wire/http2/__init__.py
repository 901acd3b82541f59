"""HTTP/2 and gRPC framing for a server, as pure values: bytes in, calls and bytes out (session.py)."""
