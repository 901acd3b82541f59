"""What all twins share: `with` starts and stops them."""

from types import TracebackType
from typing import Any, Self

from cometmq.client.loop_thread import LoopThread


class Life:
    """Needs `_inner`, the async object, and `_thread`, where it lives."""

    _inner: Any
    _thread: LoopThread

    def __enter__(self) -> Self:
        self._thread.run(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._inner.__aexit__(kind, error, trace))
