"""Messages of RocketMQ's gRPC clients: messages.proto, and what protoc makes of it (scripts/grpc_messages.py)."""
