"""Runs docs/security.md: the cluster in ten commands, as they are typed, and what it promises of that cluster."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Comet
from tests.cli.test_up import up

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "security.md").read_text(encoding="utf-8")
PLACE = "127.0.0.1:9876"


@pytest.mark.mission("AC-22")
def test_ten_commands_lock_a_cluster_down(lonely: Comet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = PAGE.split("## A locked-down cluster in ten commands")[1].split("\n## ")[0]
    commands = [line for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL) for line in block.splitlines()]
    (program,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(commands) == 10
    monkeypatch.chdir(tmp_path)
    make, start, *rest, explain = [shlex.split(line)[1:] for line in commands]
    lonely.good(*make)
    assert start[0] == "up"
    with up(tmp_path / "data", *start[1:]) as running:
        (tmp_path / "admin.key").write_text(running.said(r"^  password +(\S+)"))
        for words in rest:
            lonely.good(*[word.replace(PLACE, running.namesrv) for word in words])
        refused = lonely(*explain)
        assert refused.code == 1
        assert "refused: no entry matches" in refused.out
        (tmp_path / "program.py").write_text(program.replace(PLACE, running.namesrv))
        subprocess.run([sys.executable, "program.py"], check=True, timeout=60)
        as_billing = ("--access-key", "billing", "--secret-key", "@billing.key")
        assert lonely("send", "orders", "x", *as_billing).code == 7, "it may only read"
        where = ("--namesrv", running.namesrv)
        assert lonely("topic", "list", *where).code == 4, "nobody gets in without TLS"
        assert lonely("user", "list", *where, "--tls-ca", "certs/ca.pem").code == 7, "nor without keys"
        (moved,) = re.findall(r"^cometmq (user passwd .*)$", PAGE, re.MULTILINE)
        lonely.good(*shlex.split(moved))
        for key in ("@billing.key", "@billing-2.key"):
            asked = lonely("send", "orders", "x", "--access-key", "billing", "--secret-key", key)
            assert "Topic:orders" in asked.err, "signed, but not permitted"
    assert all(file.stat().st_mode & 0o077 == 0 for file in tmp_path.glob("*.key") if file.name != "admin.key")
