"""Sparing a worker of Spark a look at everything it has loaded, after every task.

Behind each task pyspark collects garbage, and looks for it among all objects of all modules: 7 to 32 ms for 60,000 to
90,000 objects, and hardly anything without them. What is there when the first task begins to read stays as long as the
process, so it is set aside.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Once in each process, by whoever is about to read. Nothing happens in a driver: its objects are not ours."""
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        gc.freeze()
