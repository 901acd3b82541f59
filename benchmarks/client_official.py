"""The load of one round of `benchmarks.client`, with the official Python client; runs in an interpreter that has it."""

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

WINDOW = 64


def main(address: str, topic: str, mode: str, count: int) -> dict[str, object]:
    import rocketmq  # type: ignore[import-not-found, import-untyped, unused-ignore]

    configuration = rocketmq.ClientConfiguration(address, rocketmq.Credentials())
    if mode == "receive":
        return receive(rocketmq, configuration, topic, count)
    producer = rocketmq.Producer(configuration, (topic,))
    producer.startup()

    def send(number: int, latencies: list[float]) -> None:
        for _ in range(number):
            message = rocketmq.Message()
            message.topic = topic
            message.body = b"x" * 1024
            began = time.perf_counter()
            producer.send(message)
            latencies.append((time.perf_counter() - began) * 1e6)

    send(50, [])
    latencies: list[float] = []
    began, cpu = time.perf_counter(), time.process_time()
    if mode == "one":
        send(count, latencies)
    else:
        with ThreadPoolExecutor(WINDOW) as pool:
            for future in [pool.submit(send, count // WINDOW, []) for _ in range(WINDOW)]:
                future.result()
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    producer.shutdown()
    return {"seconds": seconds, "cpu": used, "latencies": latencies}


def receive(rocketmq: Any, configuration: Any, topic: str, count: int) -> dict[str, object]:
    consumer = rocketmq.SimpleConsumer(configuration, f"{topic}_official", {topic: rocketmq.FilterExpression()})
    consumer.startup()
    seen, began, cpu = 0, 0.0, 0.0
    lock = threading.Lock()

    def work() -> None:
        nonlocal seen, began, cpu
        while seen < count:
            try:
                messages = consumer.receive(32, 30) or []
            except Exception as error:  # the proxy does not know a client before its settings have come
                print(f"again: {error}", file=sys.stderr)
                time.sleep(0.5)
                continue
            for message in messages:
                with lock:
                    if not began:
                        began, cpu = time.perf_counter(), time.process_time()
                    seen += 1
                consumer.ack(message)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while seen < count and time.monotonic() < deadline:
        time.sleep(0.01)
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    share = count / max(1, seen)  # of those that came in time
    return {"seconds": seconds * share, "cpu": used * share, "latencies": []}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))))
