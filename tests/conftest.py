"""What every test may use: `run` for coroutines, `unavailable` for missing capabilities."""

from tests.support.aio import run
from tests.support.require import unavailable

__all__ = ["run", "unavailable"]

pytest_plugins = ["pytester", "tests.support.failures_plugin", "tests.support.mission_plugin"]
