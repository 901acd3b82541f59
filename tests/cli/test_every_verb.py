"""Every verb of every noun is run by a test through the command line; what only reads, against a Java cluster, too."""

import importlib
import re
from pathlib import Path

import pytest

from cometmq.cli.main import COMMANDS

TESTS = Path(__file__).parents[1]
NOUNS = {name: module for name, (module, _) in COMMANDS.items() if hasattr(importlib.import_module(module), "VERBS")}
VERBS = [(noun, verb.name) for noun, module in NOUNS.items() for verb in importlib.import_module(module).VERBS]
READ_ONLY = (
    "topic list", "topic describe", "topic route", "group list", "group describe", "group lag", "group producers",
    "message get", "message find", "message trace", "dlq list", "cluster list", "cluster health", "cluster top",
    "cluster figures", "config get", "bench consume", "rtt", "tail", "export", "complete",
)  # fmt: skip


def texts(*folders: str) -> str:
    return "".join(file.read_text(encoding="utf-8") for folder in folders for file in sorted(TESTS.glob(folder)))


def is_run(words: list[str], text: str) -> bool:
    return re.search(r",\s*".join(f'"{word}"' for word in words), text) is not None


@pytest.mark.parametrize(("noun", "verb"), VERBS, ids=[" ".join(one) for one in VERBS])
def test_a_verb_is_run_by_a_test(noun: str, verb: str) -> None:
    assert is_run([noun, verb], texts("cli/*.py", "spark/**/*.py"))


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - set(NOUNS)))
def test_a_command_without_verbs_is_run_by_a_test(command: str) -> None:
    assert is_run([command], texts("cli/*.py", "nameserver/*.py", "broker/*.py", "proxy/*.py"))


@pytest.mark.parametrize("command", READ_ONLY)
def test_what_only_reads_is_run_against_a_java_cluster(command: str) -> None:
    assert is_run(command.split(), texts("compat/test_cli.py"))
