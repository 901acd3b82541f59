"""Checks the shape of the source: who may import whom, how long a file may be, what it must say.

Imports point one way. Each row may import its own package and everything in the rows above it:

    modules directly under cometmq (errors, clock, ...)
    wire
    net, auth, store
    failover, front
    nameserver, broker, proxy, client
    spark, sync, console
    cli, testing

The package itself is the public face of the client: it may name what is in it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.shape import largest_cycle

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
MODULES = sorted(SOURCE.rglob("*.py"))

LEVELS = {
    "wire": 1,
    "net": 2,
    "auth": 2,
    "store": 2,
    "failover": 3,
    "front": 3,
    "nameserver": 4,
    "broker": 4,
    "proxy": 4,
    "client": 4,
    "spark": 5,
    "cli": 6,
    "sync": 5,
    "kombu": 6,
    "otel": 5,
    "console": 5,
    "testing": 6,
}
FACES = {"cometmq"}
# Values in, values out: nothing below may reach wire/, not even through a module that wire/ imports.
FORBIDDEN_IN_WIRE = {"asyncio", "os", "time", "logging"}
# datetime itself is a value; these of its methods read the clock.
CLOCK_READS = {"now", "utcnow", "today"}
LINES_MAX = 600
CYCLE_MAX = 4


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


KNOWN = {module_name(path): path for path in MODULES}


def imports(path: Path) -> Iterator[str]:
    """Absolute names of all that a file imports, in functions and type checking blocks too."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield whole if whole in KNOWN else base


def package_of(module: str) -> str | None:
    """The package below cometmq, or None for a module directly below it."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LEVELS else None


def level_of(module: str) -> int:
    package = package_of(module)
    return LEVELS[package] if package else 0


def may_import(importer: str, imported: str) -> bool:
    if importer in FACES:
        return level_of(imported) <= LEVELS["client"]
    if importer.startswith("pyspark_cometmq"):  # where Spark looks for data sources
        return level_of(imported) <= LEVELS["spark"]
    if package_of(importer) == package_of(imported):
        return True
    return level_of(imported) < level_of(importer)


def reachable(module: str) -> dict[str, str]:
    """Everything outside cometmq that importing `module` brings, each with the module that does."""
    found: dict[str, str] = {}
    waiting, seen = [module], {module}
    while waiting:
        current = waiting.pop()
        for name in imports(KNOWN[current]):
            if name not in KNOWN:
                found.setdefault(name.split(".")[0], current)
            elif name not in seen:
                seen.add(name)
                waiting.append(name)
    return found


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_package_has_a_place_in_the_order() -> None:
    packages = {path.parent.name for path in MODULES if path.parent.parent == SOURCE / "cometmq"}
    assert packages <= set(LEVELS), f"give these a level: {packages - set(LEVELS)}"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_imports_point_one_way(path: Path) -> None:
    name = module_name(path)
    wrong = [used for used in imports(path) if used.split(".")[0] == "cometmq" and not may_import(name, used)]
    assert not wrong, f"{name} must not import {wrong}"


# Rooms of the broker know nothing of each other: what one needs of another is handed to it by the assembly.
ROOMS = {"access", "admin", "consume", "delayed", "grpc", "metrics", "pop", "produce", "replicas", "transactions"}
ASSEMBLY = {"cometmq.broker.ports", "cometmq.broker.rooms", "cometmq.broker.server"}
ASSEMBLED_MAX = 20


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[2] if len(parts) > 2 and parts[1] == "broker" and parts[2] in ROOMS else None


BROKER_MODULES = [name for name in KNOWN if package_of(name) == "broker"]


def test_every_room_of_the_broker_is_known() -> None:
    folders = {name.split(".")[2] for name in BROKER_MODULES if name.count(".") > 2}
    assert folders == ROOMS | {"sql", "stats", "tables"}


@pytest.mark.parametrize("module", BROKER_MODULES)
def test_rooms_of_the_broker_meet_in_the_assembly_only(module: str) -> None:
    foreign = {used for used in imports(KNOWN[module]) if room_of(used) not in (None, room_of(module))}
    assert module in ASSEMBLY or not foreign, f"{module} must not import {foreign}: let rooms.py hand it over"


def test_the_broker_is_put_together_of_few_things() -> None:
    used = {name for name in imports(KNOWN["cometmq.broker.server"]) if name in KNOWN}
    assert len(used) < ASSEMBLED_MAX, f"{len(used)} modules: does it do what a room should?"


def test_few_modules_need_each_other() -> None:
    """Imports for types count too."""
    cycle = largest_cycle({name: set(imports(path)) & KNOWN.keys() - {name} for name, path in KNOWN.items()})
    assert len(cycle) <= CYCLE_MAX, f"cut one of these: {cycle}"


WIRE_MODULES = [name for name in KNOWN if package_of(name) == "wire"]


@pytest.mark.parametrize("module", WIRE_MODULES)
def test_wire_reaches_no_clock_no_io_and_no_log(module: str) -> None:
    found = {name: by for name, by in reachable(module).items() if name in FORBIDDEN_IN_WIRE}
    assert not found, f"{module} reaches {found}"


@pytest.mark.parametrize("module", WIRE_MODULES)
def test_wire_reads_no_clock_through_datetime(module: str) -> None:
    tree = ast.parse(KNOWN[module].read_text(encoding="utf-8"))
    reads = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in CLOCK_READS]
    assert not reads, f"{module} reads the clock in lines {reads}"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_module_is_one_thing_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    assert lines <= LINES_MAX, f"{lines} lines, at most {LINES_MAX}: perhaps two things under one name"
    assert ast.get_docstring(ast.parse(text)), "no module docstring"


# Put together here so that this file does not contain what it looks for.
MACHINE_PATHS = re.compile(r"(?<![\w.~-])/(?:" + "|".join(["work", "tmp/w", "root", "home"]) + r")/\w")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".xml", ".java", ".sh", ".cfg", ".txt", ""}


def texts() -> list[Path]:
    top = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    folders = ["src", "docs", "scripts", "tests", "benchmarks", "examples", ".ci"]
    below = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [p for p in top + below if p.suffix in TEXT_SUFFIXES and "__pycache__" not in p.parts]


def test_no_file_speaks_of_one_persons_machine() -> None:
    found = {
        relative(path): match.group()
        for path in texts()
        if (match := MACHINE_PATHS.search(path.read_text(encoding="utf-8", errors="replace")))
    }
    assert not found, f"paths of one machine: {found}"


def test_the_import_rule_itself() -> None:
    assert may_import("cometmq.net.server", "cometmq.wire.frame")
    assert may_import("cometmq.broker.server", "cometmq.errors")
    assert may_import("cometmq.wire.frame", "cometmq.wire.command")
    assert not may_import("cometmq.wire.frame", "cometmq.net.server")
    assert not may_import("cometmq.net.server", "cometmq.store.segment")
    assert not may_import("cometmq.errors", "cometmq.wire.codes")
    assert not may_import("cometmq.client.produce.producer", "cometmq.broker.server")
    assert may_import("cometmq.sync", "cometmq.client.client")
    assert not may_import("cometmq.sync", "cometmq.cli.main")
