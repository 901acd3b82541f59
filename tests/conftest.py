"""What every test may use: `run` for coroutines, `unavailable` for missing capabilities."""

import signal

from tests.support.aio import run
from tests.support.require import unavailable

__all__ = ["run", "unavailable"]

pytest_plugins = ["pytester", "tests.support.mission_plugin"]

# A shell that runs the tests in the background has interrupts ignored, and so would have every server that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
