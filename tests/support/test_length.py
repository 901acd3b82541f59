"""The length of repeated tests comes from one variable, and a misspelt one is an error."""

import pytest

from tests.support.length import read_length


def test_tests_are_short_unless_told() -> None:
    assert read_length({}) == "short"
    assert read_length({"COMETMQ_LENGTH": "soak"}) == "soak"


def test_an_unknown_length_is_refused() -> None:
    with pytest.raises(ValueError, match="none of short, long, soak"):
        read_length({"COMETMQ_LENGTH": "forever"})
