"""Sending and receiving without asyncio: `cometmq.sync` has the same names."""

import os

from cometmq import StartFrom, json_codec
from cometmq.sync import Client

NAMESRV = os.environ.get("COMETMQ_NAMESRV", "127.0.0.1:9876")
TOPIC = "example-plain"


def main() -> None:
    with Client(NAMESRV) as client, client.admin() as admin:
        admin.create_topic(TOPIC, queues=2)
        with client.producer("example-plain-pg", codec=json_codec) as producer:
            for number in range(5):
                receipt = producer.send(TOPIC, {"number": number}, tag="even" if number % 2 == 0 else "odd")
                print(f"stored {number} in queue {receipt.queue.queue_id} at {receipt.offset}")
        with client.consumer(
            "example-plain-cg", topics={TOPIC: "even"}, codec=json_codec, start=StartFrom.FIRST
        ) as consumer:
            for count, message in enumerate(consumer.iter(timeout=30.0), 1):
                print(f"got {message.value['number']}, stored at {message.stored_at:%H:%M:%S}")
                if count == 3:
                    break


if __name__ == "__main__":
    main()
