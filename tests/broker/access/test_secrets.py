"""A password is in files that only their owner reads, and nowhere else. What was answered survives a kill."""

from __future__ import annotations

import io
import signal
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from cometmq.auth.signer import Signer
from cometmq.wire.codes import Request
from tests.broker.processes import broker_process
from tests.support.access import SECURED, SIGNING, add_user, allow, create_user
from tests.support.access import signed_peer as peer_of_broker
from tests.support.brokers import Peer, running_broker

MARKER = "marker-5f2c"


def peer_at(address: str, name: str, password: str) -> Peer:
    peer = Peer(address)
    peer.client.add_hook(Signer(name, password))
    return peer


def settings_file(home: Path) -> Path:
    home.mkdir(exist_ok=True)
    path = home / "broker.conf"
    path.write_text(
        "authenticationEnabled=true\nauthorizationEnabled=true\n"
        f'initAuthenticationUser={{"username":"root","password":"{MARKER} of root"}}\n'
        f'innerClientAuthenticationCredentials={{"accessKey":"servers","secretKey":"{MARKER} of servers"}}\n'
        f"tls.server.keyPassword={MARKER} of key\n"
    )
    path.chmod(0o600)
    return path


@pytest.mark.mission("AC-11")
async def test_no_password_leaves_the_files_of_its_owner(tmp_path: Path) -> None:
    conf = settings_file(tmp_path)
    with broker_process(tmp_path, "-c", str(conf), "--log-level", "debug") as process:
        root, guesser = peer_at(process.address, "root", f"{MARKER} of root"), peer_at(process.address, "root", "wrong")
        assert (await create_user(root, "alice", password=f"{MARKER} of alice")).code == 0
        assert (await create_user(root, "bob", password=MARKER)).code == 0
        await root.call(Request.AUTH_UPDATE_USER, b'{"password":"%s again"}' % MARKER.encode(), username="alice")
        await root.call(Request.AUTH_CREATE_USER, b'{"password":"%s' % MARKER.encode(), username="carol")
        await guesser.call(Request.GET_BROKER_CONFIG)
        shown = await root.call(Request.GET_BROKER_CONFIG)
        assert b"authenticationEnabled=true" in shown.body
        assert MARKER.encode() not in shown.body
        assert (await root.call(Request.UPDATE_BROKER_CONFIG, b"traceOn=false")).code == 0
        assert MARKER.encode() not in command_line_of(process.child.pid)
        for peer in (root, guesser):
            await peer.client.stop()
        process.stop()
    assert "check signature failed" in process.log
    assert MARKER not in process.log
    modes = modes_of_keepers(tmp_path)
    assert modes.keys() >= {"users.json", "broker.conf"}
    assert set(modes.values()) == {0o600}


def command_line_of(pid: int) -> bytes:
    """What everybody on the machine sees."""
    path = Path(f"/proc/{pid}/cmdline")
    return path.read_bytes() if path.exists() else b""


def modes_of_keepers(directory: Path) -> dict[str, int]:
    """Files that have the marker."""
    keepers = [path for path in directory.rglob("*") if path.is_file() and MARKER.encode() in path.read_bytes()]
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in keepers}


@pytest.mark.mission("AC-11")
def test_a_report_for_helpers_has_no_password(tmp_path: Path) -> None:
    conf, bundle = settings_file(tmp_path), tmp_path / "report.tar.gz"
    words = ("doctor", "--data", tmp_path, "-c", conf, "--bundle", bundle)
    subprocess.run([sys.executable, "-m", "cometmq.cli.main", *map(str, words)], check=False, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(bundle.read_bytes())) as files:
        texts = {member.name: (files.extractfile(member) or io.BytesIO()).read() for member in files.getmembers()}
    assert any(b"authenticationEnabled" in text for text in texts.values())
    assert [name for name, text in texts.items() if MARKER.encode() in text] == []


@pytest.mark.mission("AC-05")
async def test_a_user_whose_creation_was_answered_survives_a_kill(tmp_path: Path) -> None:
    texts = {**SECURED, **SIGNING}
    with broker_process(tmp_path, **texts) as process:
        root = peer_at(process.address, "root", "password of root")
        await add_user(root, "alice", allow("Topic:T", "Pub"))
        process.stop(signal.SIGKILL)
        await root.client.stop()
    async with running_broker(tmp_path, **texts) as broker, peer_of_broker(broker, "alice") as alice:
        assert (await alice.call(99_999)).code == 3
        assert "alice" in broker.access.acls.table
