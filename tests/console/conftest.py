"""One Chromium for all tests of the console."""

from collections.abc import Iterator

import pytest

from tests.support.browser import chromium_running


@pytest.fixture(scope="session")
def chromium() -> Iterator[str]:
    with chromium_running() as address:
        yield address
