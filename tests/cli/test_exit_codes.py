"""Every verb that talks to servers, in three kinds of trouble: the exit code is the documented one.

    no name server                        4
    a name server without any broker      4; what concerns name servers only is done, `cluster health` says no (1)
    the only broker does not answer       4; what the name server knows by itself is shown, with the broker as down
"""

import importlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.cli.main import COMMANDS
from cometmq.cli.shared import failures
from cometmq.cli.shared.arguments import Verb
from cometmq.testing import SyncCluster
from cometmq.wire.command import encode
from tests.cli.conftest import Comet
from tests.nameserver.support import registration

NOBODY = "127.0.0.1:1"
OFFSET_ID = "7F00000100002A9F0000000000000000"
OLD_ACL = str(Path(__file__).with_name("plain_acl.yml"))
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "send": ("T", "x"),
    "tail": ("T", "--no-follow"),
    "message get": (OFFSET_ID,),
    "message find": ("T", "--key", "k"),
    "message trace": (OFFSET_ID,),
    "message resend": (OFFSET_ID, "--yes"),
    "dlq list": (),
    "dlq replay": ("G", "--yes"),
    "export": ("T",),
    "import": ("T",),
    "topic list": (),
    "topic create": ("New",),
    "topic describe": ("T",),
    "topic route": ("T",),
    "topic alter": ("T", "--queues", "2"),
    "topic update": ("T", "--queues", "2"),
    "topic delete": ("T", "--yes"),
    "topic grow": ("T", "--sets", "broker-a", "--yes"),
    "topic narrow": ("T", "--queues", "1"),
    "group list": (),
    "group create": ("G",),
    "group describe": ("G",),
    "group alter": ("G", "--enable"),
    "group delete": ("G", "--yes"),
    "group lag": ("G",),
    "group seek": ("G", "T", "--to", "earliest", "--yes"),
    "group clone": ("G", "H", "--yes"),
    "group mode": ("G", "T", "pull"),
    "group producers": (),
    "cluster list": (),
    "cluster health": (),
    "cluster top": ("-n", "1"),
    "cluster figures": ("broker-a",),
    "cluster close-writes": ("broker-a", "--yes"),
    "cluster open-writes": ("broker-a",),
    "cluster clean": ("expired-files", "--yes"),
    "cluster sets": (),
    "cluster elect": ("broker-a", "2", "--yes"),
    "cluster adopt": ("broker-a", "--broker", "127.0.0.1:10911", "--yes"),
    "cluster forget": ("broker-a", "2", "--yes"),
    "cluster move": ("broker-a", "--from", "m1", "--to", "m2", "--yes"),
    "cluster plan": ("--machines", "m1..m3"),
    "cluster balance": ("--yes",),
    "cluster remove": ("broker-a", "--yes"),
    "config get": (),
    "config set": ("fileReservedTime=48", "--yes"),
    "user list": (),
    "user create": ("alice",),
    "user passwd": ("alice", "--yes"),
    "user disable": ("alice", "--yes"),
    "user enable": ("alice",),
    "user remove": ("alice", "--yes"),
    "acl list": (),
    "acl grant": ("alice", "Topic:T", "Pub", "--yes"),
    "acl revoke": ("alice", "--yes"),
    "acl explain": ("alice", "Pub", "Topic:T"),
    "acl migrate": (OLD_ACL,),
    "rtt": ("-n", "1"),
    "bench send": ("-n", "1"),
    "bench consume": ("-n", "1"),
    "bench latency": ("-n", "1"),
}
# More forms of a verb, by the verb.
FORMS = {
    "dlq list": [(), ("G",), ("-o", "json")],
    "topic list": [(), ("--system",), ("-o", "json"), ("--cluster", "C")],
    "cluster list": [(), ("-o", "json")],
    "group list": [(), ("-o", "json")],
    "group producers": [(), ("G",)],
    "message get": [(OFFSET_ID,), (OFFSET_ID, "--topic", "T")],
    "dlq replay": [("G", "--yes"), ("G",)],
    "group lag": [("G",), ("G", "-o", "json")],
}
# Jobs of Spark begin with their catalog or with Spark itself.
NEEDS_NO_SERVER = {"pipeline init", "pipeline run", "run", "lake create", "lake run", "lake status"}
# Without a broker: what a probe says is its answer, not a failure of the probe.
WITHOUT_BROKER = {"cluster health": failures.EXIT_NO, "rtt": 0}
# The only broker is stopped, but registered: the name server answers for it.
BROKER_DOWN = {
    "cluster health": {failures.EXIT_NO},
    "topic list": {0, failures.EXIT_UNREACHABLE},  # names only, or with what their brokers say
    "topic route": {0},
    "cluster list": {0},
    "cluster open-writes": {0},
    "dlq list": {0},
    "dlq replay": {0},
}


def verbs() -> list[str]:
    found = []
    for name, (module_name, _) in COMMANDS.items():
        module = importlib.import_module(module_name)
        for verb in getattr(module, "VERBS", None) or [one for one in vars(module).values() if isinstance(one, Verb)]:
            if verb.cluster:
                found.append(name if verb.name == name else f"{name} {verb.name}")
    return sorted(set(found) - NEEDS_NO_SERVER)


CASES = [(verb, form) for verb in verbs() for form in FORMS.get(verb, [ARGUMENTS.get(verb, ("?",))])]
each_verb = pytest.mark.parametrize(("verb", "form"), CASES, ids=[" ".join((verb, *form)) for verb, form in CASES])


def test_every_verb_is_looked_at() -> None:
    assert sorted(ARGUMENTS) == verbs()


def run(lonely: Comet, verb: str, form: tuple[str, ...], namesrv: str) -> tuple[int, str]:
    ran = lonely(*verb.split(), *form, "--namesrv", namesrv, "--timeout", "1s", stdin=b'{"body":"x"}\n')
    assert "Traceback" not in ran.err
    return ran.code, ran.err


@each_verb
def test_without_a_name_server(lonely: Comet, verb: str, form: tuple[str, ...]) -> None:
    code, err = run(lonely, verb, form, NOBODY)
    assert code == failures.EXIT_UNREACHABLE, err
    assert NOBODY in err


@pytest.fixture(scope="module")
def empty() -> Iterator[str]:
    """A name server with which nobody is registered."""
    with SyncCluster() as cluster:
        cluster.broker.stop()
        yield cluster.namesrv


@each_verb
def test_without_a_broker(lonely: Comet, empty: str, verb: str, form: tuple[str, ...]) -> None:
    code, err = run(lonely, verb, form, empty)
    assert code == WITHOUT_BROKER.get(verb, failures.EXIT_UNREACHABLE), err
    if code == failures.EXIT_UNREACHABLE:
        assert "no broker is registered" in err
        assert empty in err
        assert err.count("\n") == 1


def test_name_servers_are_asked_about_themselves_without_a_broker(lonely: Comet, empty: str) -> None:
    assert lonely("config", "get", "--nameserver", "listenPort", "--namesrv", empty).code == 0
    assert lonely("config", "set", "--nameserver", "x=y", "--namesrv", empty).code == 0


@pytest.fixture(scope="module")
def dead() -> Iterator[str]:
    """The only broker is registered and does not answer: its host is gone, and the name server has not noticed."""
    with SyncCluster() as cluster:
        cluster.broker.stop()
        host, _, port = cluster.namesrv.rpartition(":")
        with socket.create_connection((host, int(port))) as link:
            said = registration("T", "cometmq-bench", "RMQ_SYS_TRACE_TOPIC", broker_name="broker-a", broker_addr=NOBODY)
            link.sendall(encode(said))
            assert b'"code":0' in link.recv(4096)
            yield cluster.namesrv


@each_verb
def test_with_a_dead_broker(lonely: Comet, dead: str, verb: str, form: tuple[str, ...]) -> None:
    code, err = run(lonely, verb, form, dead)
    assert code in BROKER_DOWN.get(verb, {failures.EXIT_UNREACHABLE}), err


def test_the_codes_are_those_of_the_page() -> None:
    assert failures.__doc__ is not None
    page = (Path(__file__).parents[2] / "docs" / "operate.md").read_text(encoding="utf-8")
    for code in (value for name, value in vars(failures).items() if name.startswith("EXIT_")):
        assert f"| {code} | " in page
