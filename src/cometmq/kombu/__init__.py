"""CometMQ as a transport of Kombu, which Celery uses: brokers with URLs like cometmq://host:9876.

Celery finds it by itself where CometMQ is installed; a program that uses Kombu alone imports this module first.
"""

from cometmq.kombu.scheme import serializer as serializer
