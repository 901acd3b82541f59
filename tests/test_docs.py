"""Checks the documentation: links lead somewhere, commands exist, Python parses, generated pages are current."""

import argparse
import ast
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.cli.main import COMMANDS
from cometmq.cli.mqadmin import ALIASES
from cometmq.cli.shared.arguments import Verb, joined_moments, noun_parser, verb_parser
from cometmq.config import NameServerConfig
from cometmq.proxy.config import ProxyConfig
from cometmq.settings import settings_of
from cometmq.store.options import StoreOptions
from scripts.settings_effects import EFFECTS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packaging/*.md")])
SERVERS = ("up", "broker", "nameserver", "version", "mqadmin", "complete", "help", "--help", "pipeline")


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_leads_to_a_file(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            path = target.partition("#")[0]
            assert not path or (page.parent / path).exists(), f"{page.name} links to {target}"


def commands(page: Path) -> list[str]:
    """Lines of shell blocks that call the tool, up to a pipe or a comment."""
    found = []
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            for part in re.split(r"\s\|\s|&&", line.removeprefix("$ ").partition("  #")[0]):
                if part.strip().startswith("cometmq "):
                    found.append(part.strip())
    return found


def parser_of(command: str) -> argparse.ArgumentParser:
    module = importlib.import_module(COMMANDS[command][0])
    if hasattr(module, "VERBS"):
        return noun_parser(command, "", module.VERBS)
    if hasattr(module, "_parser"):
        return module._parser()  # type: ignore[no-any-return]
    return verb_parser(next(value for value in vars(module).values() if isinstance(value, Verb)))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_in_a_page_is_one_that_the_tool_takes(page: Path) -> None:
    for line in commands(page):
        _, command, *rest = shlex.split(line.replace(" ...", ""))
        if command not in SERVERS:
            assert command in COMMANDS, f"{page.name}: {line}"
            try:
                parser_of(command).parse_args(joined_moments(rest))
            except SystemExit:
                pytest.fail(f"{page.name}: {line}")


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_python_block_is_python(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_page_of_settings_is_current() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "scripts.settings_table", "--check"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr


def test_every_setting_says_what_it_does() -> None:
    kinds = (BrokerConfig, StoreOptions, NameServerConfig, ProxyConfig)
    known = {key for kind in kinds for key in settings_of(kind)}
    assert known == set(EFFECTS)
    assert [key for key, effect in EFFECTS.items() if len(effect.split()) < 2] == []


def test_rosetta_has_every_name_of_mqadmin() -> None:
    text = (ROOT / "docs" / "rosetta.md").read_text(encoding="utf-8")
    assert [name for name in ALIASES if f"`{name}" not in text] == []
