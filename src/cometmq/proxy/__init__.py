"""`cometmq proxy`: the gRPC front as a process of its own, for a cluster of CometMQ or RocketMQ brokers."""
