"""Access control of brokers of both makes: the same users may the same, by every client; mqadmin administers both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.compat.harness.admin import MqAdmin
from tests.compat.harness.foreign import ForeignClient
from tests.compat.harness.processes import wait_until
from tests.compat.harness.remoting import Connection
from tests.compat.harness.servers import MAKES, Broker, NameServer
from tests.compat.harness.shell import JavaShell
from tests.support.access_matrix import (
    MAY,
    REQUESTS,
    STRICTER,
    Ask,
    asks_of,
    credentials,
    is_refused,
    preparing,
    signed,
)
from tests.support.certificates import pair

pytestmark = pytest.mark.interop

PROVIDERS: Final = "org.apache.rocketmq.auth"
SECURED: Final[dict[str, object]] = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "authenticationMetadataProvider": f"{PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": '{"username":"root","password":"password of root"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"servers","secretKey":"password of servers"}',
    "brokerFastFailureEnable": False,
}
# Java brokers are poked by request 25 until they have registered.
ONLY_JAVA: Final[dict[str, object]] = {"authenticationWhitelist": "25"}


@dataclass(frozen=True, slots=True)
class Secured:
    namesrv: NameServer
    broker: Broker


class Both:
    """A cluster of each make, started when it is first asked for, with the users of the matrix."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._started: dict[str, Secured] = {}

    def __getitem__(self, name: str) -> Secured:
        if name not in self._started:
            make, directory = MAKES[name], self._directory / name
            settings = SECURED | (ONLY_JAVA if name == "java" else {})
            namesrv = self._stack.enter_context(make.name_server(directory).start())
            broker = self._stack.enter_context(make.broker(directory, namesrv.address, settings).start())
            self._started[name] = Secured(namesrv, broker)
            with Connection(broker.address) as connection:
                for ask in preparing():
                    answer = connection.call(ask.code, dict(signed("root", ask)), ask.body)
                    assert answer.code == 0, (ask, answer.remark)
        return self._started[name]


@pytest.fixture(scope="module")
def both(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with ExitStack() as stack:
        yield Both(tmp_path_factory.mktemp("secured"), stack)


def write_keys(home: Path, kind: str) -> None:
    keys = credentials(kind)
    assert keys is not None
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "tools.yml").write_text(f"accessKey: {keys[0]}\nsecretKey: {keys[1]}\n")


@pytest.fixture(scope="module")
def signing_admin(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqAdmin]:
    directory = tmp_path_factory.mktemp("mqadmin")
    admin = MqAdmin(directory)
    write_keys(admin.home, "root")
    yield admin
    admin.close()


# Who may what


@pytest.mark.mission("AC-02")
def test_rocketmq_lets_the_same_pass_where_it_asks_at_all(both: Both) -> None:
    address = both["java"].broker.address
    found = {kind: {name for name in asks_of(kind) if passes(address, kind, REQUESTS[name])} for kind in MAY}
    known = MAY.keys() - {"disabled", "wrong", "stranger", "nobody"}
    expected = {kind: may | STRICTER if kind in known else may for kind, may in MAY.items()}
    # RocketMQ reads a heartbeat for its needs before it looks whether the user has any.
    assert found == {kind: may - {"bad heartbeat"} for kind, may in expected.items()}


def passes(address: str, kind: str, ask: Ask) -> bool:
    """On a connection of its own: a heartbeat has notices follow."""
    with Connection(address) as connection:
        answer = connection.call(ask.code, dict(signed(kind, ask)), ask.body)
        return not is_refused(answer.code, answer.remark)


CLIENT = """
    import java.util.function.*;
    import org.apache.rocketmq.acl.common.*;
    import org.apache.rocketmq.remoting.RPCHook;
    Function<Throwable, String> code = thrown -> {
        for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQBrokerException) return "" + ((MQBrokerException) cause).getResponseCode();
        }
        return thrown.toString();
    };
    BiConsumer<String, Callable<Object>> attempt = (what, act) -> {
        try { emit("what", what, "code", act.call().toString()); }
        catch (Exception e) { emit("what", what, "code", code.apply(e)); }
    };
    RPCHook hook = args[2].isEmpty() ? null : new AclClientRPCHook(new SessionCredentials(args[2], args[3]));
    DefaultMQProducer p = use(new DefaultMQProducer("producers", hook));
    p.setNamesrvAddr(args[0]);
    p.start();
    Message one = new Message(args[1], "one".getBytes());
    attempt.accept("send", () -> p.send(one, 10_000).getSendStatus());
    attempt.accept("batch", () -> p.send(Arrays.asList(one, one), 10_000).getSendStatus());
    p.sendOneway(one);
    DefaultMQPullConsumer c = use(new DefaultMQPullConsumer("g", hook));
    c.setNamesrvAddr(args[0]);
    c.start();
    MessageQueue q = new MessageQueue(args[1], "broker-a", 0);
    attempt.accept("pull", () -> c.pull(q, "*", 0, 32, 10_000).getPullStatus());
    attempt.accept("max", () -> c.maxOffset(q) > 0);
"""
SENT: Final = {"send": "SEND_OK", "batch": "SEND_OK"}
CLIENTS: Final = {
    "root": {**SENT, "pull": "FOUND", "max": "true"},
    "owner": {**SENT, "pull": "FOUND", "max": "true"},
    "publisher": {**SENT, "pull": "16", "max": "16"},
    "subscriber": {"send": "16", "batch": "16", "pull": "FOUND", "max": "16"},
    "disabled": dict.fromkeys(("send", "batch", "pull", "max"), "16"),
    "nobody": dict.fromkeys(("send", "batch", "pull", "max"), "16"),
}


@pytest.mark.mission("AC-07")
@pytest.mark.parametrize("name", list(MAKES))
def test_java_clients_see_the_same_answers(both: Both, java: JavaShell, name: str) -> None:
    namesrv = both[name].namesrv.address
    found = {}
    for kind in CLIENTS:
        user, secret, _ = credentials(kind) or ("", "", None)
        rows = java.run(CLIENT, namesrv, "orders", user, secret).rows
        found[kind] = {row["what"]: row["code"] for row in rows}
    assert found == CLIENTS


@pytest.mark.mission("AC-07")
@pytest.mark.parametrize("name", list(MAKES))
def test_clients_in_other_languages_sign_too(both: Both, foreign: ForeignClient, name: str) -> None:
    namesrv = both[name].namesrv.address
    owner = foreign.signing("owner", "password of owner")
    topic = f"orders_{foreign.language}"
    asks = [Ask(17, {**REQUESTS["create topic"].ext, "topic": topic})]
    with Connection(both[name].broker.address) as connection:
        assert [connection.call(it.code, dict(signed("owner", it)), it.body).code for it in asks] == [0]
    owner.send(namesrv, topic, "one", "two")
    got = owner.consume(namesrv, topic, f"g_{foreign.language}", 2)
    assert sorted(row["body"] for row in got) == ["one", "two"]
    for refused in (foreign, foreign.signing("subscriber", "password of subscriber")):
        with pytest.raises(AssertionError, match="client failed"):
            refused.send(namesrv, topic, "three")


@pytest.mark.mission("AC-09")
def test_java_clients_speak_tls(jars: None, java: JavaShell, tmp_path: Path) -> None:
    certificate, key = pair("server").write(tmp_path, "server")
    texts: dict[str, object] = {
        "tls.server.mode": "enforcing", "tls.server.certPath": certificate, "tls.server.keyPath": key,
        "tls.client.authServer": False,
    }  # fmt: skip
    permissive = {**texts, "tls.server.mode": "permissive"}
    with (
        MAKES["comet"].name_server(tmp_path, permissive).start() as names,
        MAKES["comet"].broker(tmp_path, names.address, texts).start(),
    ):
        sent = java.run(TLS_SEND, names.address, f"Tls{java.version[0]}").rows
    assert sent == [{"status": "SEND_OK"}]


TLS_SEND: Final = """
    DefaultMQProducer p = use(new DefaultMQProducer("producers"));
    p.setNamesrvAddr(args[0]);
    p.setUseTLS(true);
    p.start();
    emit("status", p.send(new Message(args[1], "x".getBytes()), 10_000).getSendStatus());
"""


# Replicas

TABLES_S: Final = 120.0
SLAVE: Final[dict[str, object]] = {"brokerRole": "SLAVE", "brokerId": 1}
STRANGER: Final[dict[str, object]] = {
    "innerClientAuthenticationCredentials": '{"accessKey":"strangers","secretKey":"password of strangers"}'
}


# RocketMQ's replica asks for tables after a minute.
@pytest.mark.mission("AC-08")
@pytest.mark.parametrize(
    ("makes", "known"),
    [
        (("java", "comet"), True),
        (("java", "comet"), False),
        (("comet", "java"), False),
        pytest.param(("comet", "java"), True, marks=pytest.mark.long),
    ],
)
def test_a_replica_of_the_other_make_follows_with_the_same_credentials_only(
    both: Both, tmp_path: Path, makes: tuple[str, str], known: bool
) -> None:
    master = both[makes[0]]
    # Of the topics with messages it knows by the log, which no signature guards.
    quiet = Ask(17, {**REQUESTS["create topic"].ext, "topic": "quiet"})
    with Connection(master.broker.address) as connection:
        assert connection.call(quiet.code, dict(signed("root", quiet))).code == 0
    settings = SECURED | SLAVE | (ONLY_JAVA if makes[1] == "java" else {}) | ({} if known else STRANGER)
    with MAKES[makes[1]].broker(tmp_path, master.namesrv.address, settings).start() as replica:
        looking = Ask(351, {"topic": "quiet"})

        def has_topic() -> bool:
            with Connection(replica.address) as connection:
                return connection.call(looking.code, dict(signed("root", looking))).code == 0

        if known:
            wait_until(has_topic, "the topics of the master", TABLES_S)
            if makes[1] == "comet":
                wait_until(lambda: passes(replica.address, "owner", REQUESTS["unknown"]), "the users of the master")
        else:
            wait_until(lambda: REFUSED.search(replica.log() + everything(replica)) is not None, "a refusal")
            assert not has_topic()


REFUSED: Final = re.compile(r"check signature failed|User:strangers is not found")


def everything(replica: Broker) -> str:
    """RocketMQ's brokers log into files below their home."""
    return "".join(path.read_text(errors="replace") for path in replica.home.rglob("*.log"))


# mqadmin


def said(admin: MqAdmin, *words: object) -> list[str]:
    """What a command printed that does not depend on the address: lines, and the code of a refusal."""
    done = admin(*words, check=False)
    refusals = re.findall(r"CODE: (\d+) +DESC: ([^\n]*)", done.stdout + done.stderr)
    lines = [line for line in done.lines if not re.search(r"Exception|^\s*at |^\s*\.\.\. |RocketMQLog|BROKER:", line)]
    return [re.sub(r"127\.0\.0\.1:\d+", "ADDR", line) for line in lines] + [
        f"{code} {re.sub(r'127.0.0.1(:[0-9]+)?', 'ADDR', text)}" for code, text in refusals[:1]
    ]


LIVES: Final[list[tuple[str, ...]]] = [
    ("createUser", "-u", "ann", "-p", "password of ann"),
    ("createUser", "-u", "ann", "-p", "password of ann"),
    ("createUser", "-u", "boss", "-p", "password of boss", "-t", "Super"),
    ("getUser", "-u", "ann"),
    ("updateUser", "-u", "ann", "-s", "disable"),
    ("updateUser", "-u", "ann", "-t", "Super"),
    ("updateUser", "-u", "nobody", "-s", "disable"),
    ("listUser", "-f", "nn"),
    ("createAcl", "-s", "User:ann", "-r", "Topic:a,Group:b*", "-a", "Pub,Sub", "-d", "Allow", "-i", "10.0.0.0/8"),
    ("updateAcl", "-s", "User:ann", "-r", "Topic:a", "-a", "All", "-d", "Deny"),
    ("createAcl", "-s", "User:nobody", "-r", "Topic:a", "-a", "Pub", "-d", "Allow"),
    ("getAcl", "-s", "User:ann"),
    ("listAcl", "-s", "ann"),
    ("listAcl", "-s", "ann", "-r", "Group"),
    ("deleteAcl", "-s", "User:ann", "-r", "Topic:a"),
    ("getAcl", "-s", "User:ann"),
    ("deleteAcl", "-s", "User:ann"),
    ("deleteAcl", "-s", "User:ann"),
    ("deleteUser", "-u", "ann"),
    ("deleteUser", "-u", "boss"),
    ("getUser", "-u", "ann"),
    ("listUser", "-f", "boss"),
]


@pytest.mark.mission("AC-04")
def test_mqadmin_says_the_same_of_both(both: Both, signing_admin: MqAdmin) -> None:
    for words in LIVES:
        java, comet = (said(signing_admin, *words, "-b", both[name].broker.address) for name in ("java", "comet"))
        assert comet == java, words


@pytest.mark.mission("AC-04")
def test_mqadmin_copies_users_and_policies_between_the_makes(both: Both, signing_admin: MqAdmin) -> None:
    for source, target in (("java", "comet"), ("comet", "java")):
        here, there = both[source].broker.address, both[target].broker.address
        name = f"from_{source}"
        signing_admin("createUser", "-u", name, "-p", f"password of {name}", "-b", here)
        signing_admin("createAcl", "-s", f"User:{name}", "-r", "Topic:a*", "-a", "Pub", "-d", "Allow", "-b", here)
        signing_admin("copyUser", "-f", here, "-t", there, "-u", name)
        signing_admin("copyAcl", "-f", here, "-t", there, "-s", f"User:{name}")
        for command, subject in (("getUser", ("-u", name)), ("getAcl", ("-s", f"User:{name}"))):
            assert said(signing_admin, command, *subject, "-b", here) == said(
                signing_admin, command, *subject, "-b", there
            )


@pytest.mark.mission("AC-04")
def test_mqadmin_without_keys_is_refused(both: Both, mqadmin: MqAdmin) -> None:
    for words in (("listUser",), ("brokerStatus",), ("updateTopic", "-t", "fresh")):
        lines = said(mqadmin, *words, "-b", both["comet"].broker.address)
        assert any("username cannot be null" in line for line in lines)
