"""Checks `cometmq user` against brokers that check signatures and policies."""

from pathlib import Path

import pytest

from cometmq.testing import SyncCluster
from tests.cli.conftest import Comet


def signed(user: str, secret: str, *words: str) -> tuple[str, ...]:
    return (*words, "--access-key", user, "--secret-key", secret)


@pytest.mark.mission("AC-19")
def test_a_user_is_made_on_every_broker_and_its_password_shown_once(secured: Comet) -> None:
    made = secured.good("user", "create", "anna", "-o", "json")
    assert made.json | {"password": ""} == {
        "user": "anna",
        "super": False,
        "enabled": True,
        "brokers": ["broker-a", "broker-b"],
        "differs": [],
        "password": "",
    }
    password = made.json["password"]
    assert "shown this once" in made.err
    assert "cometmq acl grant anna" in made.err
    listed = secured.good("user", "list", "-o", "json")
    assert {"anna", "root"} <= {row["user"] for row in listed.json}
    assert password not in listed.out + secured.good("user", "list", "anna", "-o", "wide").out
    refused = secured(*signed("anna", password, "topic", "list", "-o", "json"))
    assert refused.code == 7, "the password is right, but nothing is granted yet"
    again = secured("user", "create", "anna")
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "exists on broker-a, broker-b" in again.err


@pytest.mark.mission("AC-19")
def test_a_password_from_a_file_is_not_shown(secured: Comet, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("marker-of-bert\n")
    made = secured.good("user", "create", "bert", "--super", "--password", f"@{tmp_path}/password", "-o", "json")
    assert "password" not in made.json
    assert "marker" not in made.out + made.err
    secured.good(*signed("bert", "marker-of-bert", "user", "list"))
    saved = tmp_path / "saved"
    made = secured.good("user", "create", "berta", "--super", "--save", saved, "-o", "json")
    assert made.json["password_file"] == str(saved)
    assert saved.read_text().strip() not in made.out + made.err
    secured.good("user", "list", "--access-key", "berta", "--secret-key", f"@{saved}")
    again = secured("user", "create", "berta", "--save", tmp_path / "other")
    assert again.code == 2
    assert not (tmp_path / "other").exists(), "nothing was made, so nothing is kept"
    short = secured("user", "create", "short", "--password", "1234567")
    assert (short.code, short.err.count("\n")) == (2, 1)
    assert "1234567" not in short.err


@pytest.mark.mission("AC-19")
def test_a_password_changes_with_or_without_an_overlap(secured: Comet, tmp_path: Path) -> None:
    first = secured.good("user", "create", "carl", "--super", "-o", "json").json["password"]
    plan = secured.good("user", "passwd", "carl")
    assert plan.out == ""
    assert "the old one is refused at once" in plan.err
    assert "--yes" in plan.err
    secured.good(*signed("carl", first, "user", "list"))
    second = secured.good("user", "passwd", "carl", "--overlap", "1h", "--yes", "-o", "json").json["password"]
    for password in (first, second):
        secured.good(*signed("carl", password, "user", "list"))
    (tmp_path / "own").write_text("third-secret")
    own = secured.good(*signed("carl", second, "user", "passwd", "carl", "--password", f"@{tmp_path}/own", "--yes"))
    assert "the user of this command" in own.err
    for password in (first, second):
        assert secured(*signed("carl", password, "user", "list")).code == 7
    secured.good(*signed("carl", "third-secret", "user", "list"))


@pytest.mark.mission("AC-19")
def test_a_disabled_user_is_refused_until_it_is_enabled(secured: Comet) -> None:
    password = secured.good("user", "create", "dirk", "--super", "-o", "json").json["password"]
    assert "--yes" in secured.good("user", "disable", "dirk").err
    secured.good(*signed("dirk", password, "user", "list"))
    assert secured.good("user", "disable", "dirk", "--yes", "-o", "json").json["enabled"] is False
    refused = secured(*signed("dirk", password, "user", "list"))
    assert (refused.code, refused.err.count("\n")) == (7, 1)
    assert "cometmq user enable dirk" in refused.err
    secured.good("user", "enable", "dirk")
    secured.good(*signed("dirk", password, "user", "list"))


@pytest.mark.mission("AC-19")
def test_a_user_is_removed_with_what_it_may_do(secured: Comet) -> None:
    secured.good("user", "create", "emma")
    secured.good("acl", "grant", "emma", "Topic:t", "Pub", "--yes")
    plan = secured.good("user", "remove", "emma")
    assert "with 1 entries" in plan.err
    assert "emma" in secured.good("user", "list").out
    gone = secured.good("user", "remove", "emma", "--yes", "-o", "json")
    assert gone.json == {"user": "emma", "removed_from": ["broker-a", "broker-b"]}
    for verb in (("passwd", "emma", "--yes"), ("remove", "emma", "--yes"), ("enable", "emma")):
        missing = secured("user", *verb)
        assert (missing.code, missing.err.count("\n")) == (6, 1)
    assert "emma" not in secured.good("acl", "list").out


@pytest.mark.mission("AC-19")
def test_brokers_that_know_a_user_otherwise_are_named(secured: Comet) -> None:
    secured.good("user", "create", "fred", "--broker", "broker-a")
    listed = secured.good("user", "list", "fred", "-o", "json")
    assert listed.json[0]["differs"] == ["broker-b"]
    assert "broker-b" in listed.err
    secured.good("user", "create", "fred", "--broker", "broker-b", "--super")
    assert secured.good("user", "list", "fred", "-o", "json").json[0]["differs"] == ["broker-b"]
    secured.good("user", "remove", "fred", "--yes")


@pytest.mark.mission("AC-19")
@pytest.mark.parametrize(
    ("keys", "cause"),
    [
        (("", ""), "give access_key and secret_key"),
        (("nobody", "x" * 8), "there is no user nobody, or the secret key is not its password"),
        (("root", "marker-wrong"), "there is no user root, or the secret key is not its password"),
    ],
)
def test_wrong_keys_are_told_in_one_line(
    secured: Comet, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, str], cause: str
) -> None:
    monkeypatch.setenv("COMETMQ_ACCESS_KEY", keys[0])
    monkeypatch.setenv("COMETMQ_SECRET_KEY", keys[1])
    refused = secured("user", "list")
    assert (refused.code, refused.err.count("\n")) == (7, 1)
    assert cause in refused.err
    assert "marker" not in refused.err


@pytest.mark.mission("AC-19")
def test_what_a_refused_command_lacks_is_named_with_the_grant_that_helps(
    secured: Comet, secured_cluster: SyncCluster
) -> None:
    password = secured.good("user", "create", "gina", "-o", "json").json["password"]
    secured.good("topic", "create", "OrdersOfGina")
    refused = secured(*signed("gina", password, "send", "OrdersOfGina", "x"))
    assert refused.code == 7
    grant = "cometmq acl grant gina Topic:OrdersOfGina Pub --yes"
    assert grant in refused.err
    secured.good(*grant.split()[1:])
    secured.good(*signed("gina", password, "send", "OrdersOfGina", "x"))
