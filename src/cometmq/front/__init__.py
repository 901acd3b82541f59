"""What RocketMQ's 5.x clients talk to: the calls of apache.rocketmq.v2.MessagingService, made into remoting requests.

Two processes have it: a broker (broker/grpc), and `cometmq proxy` (proxy/), each with a `Backend` of its own.
"""
