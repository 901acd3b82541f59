"""A Celery program as it would be for any broker: only the URL says that this is CometMQ."""

import os
import time
from typing import Any

from celery import Celery, Task

app = Celery("shop", broker=os.environ["BROKER"], backend="rpc://")
app.conf.update(task_acks_late=True, broker_connection_retry_on_startup=True)


@app.task  # type: ignore[untyped-decorator]
def add(a: int, b: int) -> int:
    return a + b


@app.task(bind=True, max_retries=3)  # type: ignore[untyped-decorator]
def third_time(self: Any) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return int(self.request.retries)


@app.task  # type: ignore[untyped-decorator]
def slow_once(flag: str) -> str:
    """Holds its worker until that is killed; the next one returns."""
    if os.path.exists(flag):
        return "second"
    with open(flag, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
    return "first"


assert issubclass(Task, object)
