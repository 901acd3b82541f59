"""Runs docs/tutorial.md and docs/topics.md from top to bottom: commands as they are typed, programs as written."""

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.testing import SyncCluster
from tests.cli.conftest import Comet

DOCS = Path(__file__).resolve().parent.parent / "docs"
NAMESRV = "127.0.0.1:9876"
# What needs another terminal or the reader's own files.
LEFT_OUT = ("make run", "source ", "cometmq doctor", "cometmq store dump")
LIMIT_S = 60.0


@pytest.fixture
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster(brokers=2) as running:
        yield running


@pytest.fixture
def comet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cluster: SyncCluster
) -> Comet:
    monkeypatch.setenv("COMETMQ_NAMESRV", cluster.namesrv)
    monkeypatch.setenv("COMETMQ_CONFIG", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Comet(capsys, monkeypatch)


def pieces(page: str) -> list[tuple[str, str]]:
    """("sh", a command) and ("python", a program) in the order of the page."""
    found: list[tuple[str, str]] = []
    text = (DOCS / page).read_text(encoding="utf-8")
    for language, block in re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL):
        if language == "python":
            found.append(("python", block))
            continue
        lines = [line.partition("  #")[0].strip() for line in block.splitlines()]
        found += [("sh", line) for line in lines if line and not line.startswith(LEFT_OUT)]
    return found


def type_command(comet: Comet, line: str) -> None:
    piped, _, command = line.rpartition(" | ")
    stdin = b""
    if piped:
        count = int(piped.removeprefix("seq "))
        stdin = b"".join(b"%d\n" % number for number in range(1, count + 1))
    _, *arguments = shlex.split(command)
    ran = comet(*arguments, stdin=stdin)
    assert ran.code == 0, f"{line}\n{ran.out}{ran.err}"


class Program:
    """A program of the page, running as a process of its own."""

    def __init__(self, name: str, text: str, namesrv: str) -> None:
        Path(name).write_text(text.replace(NAMESRV, namesrv), encoding="utf-8")
        self._printed = Path(f"{name}.out")
        with self._printed.open("wb") as output:
            self.process = subprocess.Popen([sys.executable, "-u", name], stdout=output, stderr=subprocess.STDOUT)

    @property
    def printed(self) -> str:
        return self._printed.read_text(encoding="utf-8")

    def end(self) -> int:
        return self.process.wait(LIMIT_S)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.end()


def test_the_tutorial_runs_from_top_to_bottom(comet: Comet, cluster: SyncCluster) -> None:
    whole = pieces("tutorial.md")
    (sender, consumer) = [text for language, text in whole if language == "python"]
    consuming: Program | None = None
    for language, text in whole:
        if text == sender:
            continue  # after the consumer, which begins with what comes
        if text == consumer:
            consuming = Program("consumer.py", consumer, cluster.namesrv)
            until_s = time.monotonic() + LIMIT_S
            while "billing" not in comet.good("group", "list").out:
                assert time.monotonic() < until_s, "the consumer's group never came"
                time.sleep(0.1)
            while "bill b'" not in consuming.printed:  # a new group begins with what comes after its first look
                assert time.monotonic() < until_s, consuming.printed
                sending = Program("sender.py", sender, cluster.namesrv)
                assert sending.end() == 0, sending.printed
                time.sleep(0.5)
            continue
        if "group seek" in text and consuming is not None:
            consuming.interrupt()
            assert "Traceback" not in consuming.printed
            consuming = None
        assert language == "sh"
        type_command(comet, text)


def test_the_program_of_the_readme_sends_and_receives(comet: Comet, cluster: SyncCluster) -> None:
    (text,) = re.findall(r"```python\n(.*?)```", (DOCS.parent / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(text.splitlines()) <= 12
    program = Program("readme.py", text, cluster.namesrv)
    assert program.end() == 0, program.printed
    assert program.printed == "('customer-7',) b'one copy'\n"


def test_the_readme_maps_every_folder() -> None:
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    source = DOCS.parent / "src" / "cometmq"
    packages = {path.parent for path in source.rglob("__init__.py")} - {source}
    top = {path.name for path in packages if path.parent == source}
    assert top <= set(re.findall(r"^  (\w+)/", text, re.MULTILINE))
    assert {path.name for path in packages} <= set(re.findall(r"(\w+)/", text))
    assert all((DOCS.parent / name).is_dir() for name in re.findall(r"^(\w+)/", text, re.MULTILINE))


def test_the_page_of_topics_runs_from_top_to_bottom(comet: Comet) -> None:
    comet.good("group", "create", "billing")
    lines = [text for _, text in pieces("topics.md")]
    assert len(lines) >= 9
    for line in lines:
        type_command(comet, line)
        if "topic delete" in line:
            comet.good("topic", "create", "orders", "--broker", "broker-a")
