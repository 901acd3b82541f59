"""The gRPC front of a broker: its own handlers are asked, without a socket."""
