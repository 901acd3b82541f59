"""What every test may use: coroutines as tests, `run` for other coroutines, `unavailable` for missing capabilities."""

import inspect
import signal

import pytest

from tests.support.aio import run
from tests.support.require import unavailable

__all__ = ["run", "unavailable"]

pytest_plugins = ["pytester", "tests.support.mission_plugin"]

# A shell that runs the tests in the background has interrupts ignored, and so would have every server that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs on an event loop of its own, with the time limit of `run`."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = inspect.signature(pyfuncitem.obj).parameters
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in arguments}))
    return True
