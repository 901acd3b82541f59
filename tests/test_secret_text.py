"""Secrets as they are given: themselves, or in a file."""

from pathlib import Path

import pytest

from cometmq.errors import ConfigError
from cometmq.secret_text import FILE_BYTES_MAX, read_secret


@pytest.mark.mission("AC-16")
def test_a_text_is_itself_and_a_file_gives_its_first_line(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("marker-secret\r\nsecond line\n")
    assert read_secret("--secret-key", "plain") == "plain"
    assert read_secret("--secret-key", f"@{file}") == "marker-secret"
    assert read_secret("initAuthenticationUser", f"@{file}", whole=True) == "marker-secret\r\nsecond line"


@pytest.mark.mission("AC-16")
@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "cannot read"),
        (b"\nmarker-secret", "empty first line"),
        (b"\xff\xfe", "is not text"),
        (b"marker-secret" * FILE_BYTES_MAX, "more than"),
    ],
)
def test_a_file_without_a_secret_is_refused_without_its_content(
    tmp_path: Path, content: bytes | None, cause: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        read_secret("--secret-key", f"@{file}")
    assert cause in str(refused.value)
    assert str(file) in str(refused.value)
    assert "marker-secret" not in str(refused.value)
