"""RocketMQ's gRPC clients (5.x), served by the broker's own process."""
