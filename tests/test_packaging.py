"""Checks what is in packaging/: settings that a broker takes, units and an image that call commands which exist."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from cometmq.broker.admin import settings as live
from cometmq.cli import broker, health, nameserver, proxy, up
from cometmq.net.seen import PAGES
from cometmq.settings import settings_of
from cometmq.store.options import StoreOptions
from cometmq.wire import java_properties
from scripts import record_session

ROOT = Path(__file__).resolve().parent.parent
PACKAGING = ROOT / "packaging"
PARSERS = {
    "broker": broker._parser,
    "nameserver": nameserver._parser,
    "up": up._parser,
    "health": health._parser,
    "proxy": proxy._parser,
}
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


@pytest.mark.parametrize("path", sorted(PACKAGING.glob("conf/*.conf")), ids=lambda path: path.name)
def test_example_settings_are_ones_that_a_broker_starts_with(path: Path) -> None:
    texts = java_properties.parse(path.read_bytes())
    settings = live.load(dict(texts))
    known = settings_of(type(settings.config)).keys() | settings_of(StoreOptions).keys()
    assert texts.keys() - known == set(), "no key without effect in an example"
    assert texts["storePathRootDir"].startswith("/var/lib/cometmq")


@pytest.mark.parametrize("path", sorted(PACKAGING.glob("systemd/*.service")), ids=lambda path: path.name)
def test_units_call_commands_that_exist(path: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    (after,) = re.findall(r"^ExecStartPost=(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    for called in (line, after):
        program, command, *arguments = shlex.split(called)
        assert program == "/opt/cometmq/bin/cometmq"
        PARSERS[command]().parse_args(arguments)
    assert "--ready" in after, "a unit has started when it is ready"


def test_probes_of_the_kubernetes_example_ask_pages_that_exist() -> None:
    documents = list(yaml.safe_load_all((PACKAGING / "kubernetes" / "cometmq.yaml").read_text(encoding="utf-8")))
    kinds = [document["kind"] for document in documents]
    assert kinds == ["Service", "StatefulSet", "Service", "StatefulSet", "PodMonitor"]
    asked: list[str] = []
    for document in documents:
        for container in document["spec"].get("template", {}).get("spec", {}).get("containers", ()):
            _, command, *arguments = container["command"]
            PARSERS[command]().parse_args([word.replace("$(POD_NAME)", "a") for word in arguments])
            probes = {name: container[name]["httpGet"]["path"] for name in PROBES}
            assert probes == {"startupProbe": "/startupz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
            asked += probes.values()
    assert len(asked) == 6
    assert set(asked) <= PAGES.keys()


def test_what_the_image_runs_serves_and_is_found_healthy(tmp_path: Path) -> None:
    text = (PACKAGING / "Containerfile").read_text(encoding="utf-8").replace("\\\n", "")
    lines = re.findall(r"^(?:CMD|HEALTHCHECK CMD) (\[.*\])$", text, re.MULTILINE)
    (first, *probe), (second, *serve) = (json.loads(line) for line in lines)
    assert first == second == "cometmq"
    tool = [sys.executable, "-m", "cometmq.cli.main"]
    port = free_port()
    # The later `--set` counts.
    here = ["--data", str(tmp_path), "--namesrv-port", "0", "--broker-port", "0"]
    here += ["--set", f"metricsPromExporterPort={port}", "--set", "metricsPromExporterHost=127.0.0.1"]
    with subprocess.Popen([*tool, *serve, *here], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("ready")
            asked = [*tool, *probe, "--wait", "30", "--url", f"http://127.0.0.1:{port}"]
            ran = subprocess.run(asked, check=False, capture_output=True, text=True)
        finally:
            server.terminate()
        assert server.wait(60) == 0
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["ready"]


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def test_a_source_distribution_has_what_a_build_needs(tmp_path: Path) -> None:
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__", "*.so"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    environment = {**os.environ, "COMETMQ_COMPILE": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, env=environment, check=False, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"pyproject.toml", "setup.py", "LICENSE", "README.md", "src/cometmq/cli/main.py"} <= names


def test_the_session_in_the_readme_is_the_recorded_one() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    session = readme.partition(record_session.BEGIN)[2].partition(record_session.END)[0]
    typed = [line.removeprefix("$ ") for line in session.splitlines() if line.startswith("$ ")]
    assert typed == list(record_session.COMMANDS), "run python scripts/record_session.py --write"
    assert not any(mark in session for mark in record_session.WRONG)
