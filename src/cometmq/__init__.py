"""CometMQ: a message queue in Python, compatible with Apache RocketMQ on the wire and on disk."""

__version__ = "0.1.0"

__all__ = ["__version__"]
