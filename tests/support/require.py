"""What a test does when the machine lacks something: skip here, fail where it was promised.

COMETMQ_REQUIRE=interop,spark lists capabilities that must be there; continuous integration sets it, so
that a missing Java never turns into a green run that tested nothing.
"""

import os
from typing import NoReturn

import pytest


def unavailable(capability: str, reason: str) -> NoReturn:
    """Call this when `capability` is not there. Skips with one line, or fails if it is required."""
    line = f"{capability} tests cannot run: {reason}"
    required = os.environ.get("COMETMQ_REQUIRE", "").replace(" ", "").split(",")
    if capability in required:
        pytest.fail(f"{line} (COMETMQ_REQUIRE names {capability})", pytrace=False)
    pytest.skip(f"NOT TESTED: {line}")
