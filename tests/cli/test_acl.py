"""Checks `cometmq acl` against brokers that check signatures and policies."""

from pathlib import Path

import pytest

from cometmq.testing import SyncCluster
from tests.cli.conftest import Comet

OLD_ACL = Path(__file__).with_name("plain_acl.yml")


@pytest.mark.mission("AC-19")
def test_a_grant_is_shown_as_a_plan_then_carried_out(secured: Comet) -> None:
    secured.good("user", "create", "hans")
    plan = secured.good("acl", "grant", "hans", "Topic:orders_*", "Pub,Sub", "-o", "json")
    assert [(row["broker"], row["before"], row["after"]) for row in plan.json] == [
        ("broker-a", None, "Allow Pub,Sub"),
        ("broker-b", None, "Allow Pub,Sub"),
    ]
    assert "--yes" in plan.err
    assert secured.good("acl", "list", "hans", "-o", "json").json == []
    assert "granted on broker-a, broker-b" in secured.good(
        "acl", "grant", "hans", "Topic:orders_*", "Pub", "Sub", "--yes"
    ).err
    more = secured.good("acl", "grant", "hans", "Get", "Topic:orders_*", "--yes", "-o", "json")
    assert (more.json[0]["before"], more.json[0]["after"]) == ("Allow Pub,Sub", "Allow Pub,Sub,Get")
    assert "nothing to change" in secured.good("acl", "grant", "hans", "Topic:orders_*", "Get", "--yes").err
    secured.good("acl", "grant", "hans", "Group:billing", "Sub", "--from", "10.0.0.0/8", "--from", "::1", "--yes")
    secured.good("acl", "grant", "hans", "*", "All", "--deny", "--default", "--yes")
    rows = secured.good("acl", "list", "hans", "-o", "json").json
    assert [(row["policy"], row["resource"], row["actions"], row["decision"], row["sources"]) for row in rows] == [
        ("Custom", "Topic:orders_*", ["Pub", "Sub", "Get"], "Allow", []),
        ("Custom", "Group:billing", ["Sub"], "Allow", ["10.0.0.0/8", "::1"]),
        ("Default", "*", ["All"], "Deny", []),
    ]
    assert rows[0]["brokers"] == ["broker-a", "broker-b"]
    only = secured.good("acl", "list", "hans", "--resource", "Group", "-o", "json").json
    assert [row["resource"] for row in only] == ["Group:billing"]


@pytest.mark.mission("AC-19")
def test_a_revocation_takes_actions_an_entry_or_all(secured: Comet) -> None:
    secured.good("user", "create", "ines")
    for resource, actions in (("Topic:a", "Pub,Sub"), ("Topic:b", "Pub"), ("Group:c", "Sub")):
        secured.good("acl", "grant", "ines", resource, actions, "--yes")
    plan = secured.good("acl", "revoke", "ines", "Topic:a", "Pub", "-o", "json")
    assert (plan.json[0]["before"], plan.json[0]["after"]) == ("Allow Pub,Sub", "Allow Sub")
    secured.good("acl", "revoke", "ines", "Topic:a", "Pub", "--yes")
    secured.good("acl", "revoke", "ines", "Topic:b", "--yes")
    rows = secured.good("acl", "list", "ines", "-o", "json").json
    assert [(row["resource"], row["actions"]) for row in rows] == [("Topic:a", ["Sub"]), ("Group:c", ["Sub"])]
    missing = secured("acl", "revoke", "ines", "Topic:b", "--yes")
    assert (missing.code, missing.err.count("\n")) == (6, 1)
    secured.good("acl", "revoke", "ines", "--yes")
    assert secured.good("acl", "list", "ines", "-o", "json").json == []


@pytest.mark.mission("AC-19")
def test_words_that_are_not_known_are_refused_before_anything_is_sent(secured: Comet) -> None:
    secured.good("user", "create", "jane")
    for words in (
        ("grant", "jane", "orders", "Pub"),
        ("grant", "jane", "Topic:t"),
        ("grant", "jane", "Topic:t", "Publish"),
        ("grant", "jane", "Topic:t", "Topic:u", "Pub"),
        ("grant", "jane", "Topic:t", "Pub", "--from", "10.0.0.*"),
        ("revoke", "jane", "Pub"),
        ("explain", "jane", "All", "Topic:t"),
        ("explain", "jane", "Pub", "Topic:t*"),
        ("explain", "jane", "Pub", "Topic:t", "--from", "host"),
    ):
        wrong = secured("acl", *words)
        assert (wrong.code, wrong.err.count("\n")) == (2, 1), wrong.err
    for unknown in (("grant", "nobody", "Topic:t", "Pub"), ("list", "nobody"), ("explain", "nobody", "Pub", "Topic:t")):
        assert secured("acl", *unknown).code == 6


@pytest.mark.mission("AC-19")
def test_an_explanation_names_the_entry_that_decides(secured: Comet) -> None:
    secured.good("user", "create", "karl")
    nothing = secured("acl", "explain", "karl", "Pub", "Topic:orders")
    assert nothing.code == 1
    assert "cometmq acl grant karl Topic:orders Pub" in nothing.out
    secured.good("acl", "grant", "karl", "Topic:orders*", "Pub", "--yes")
    secured.good("acl", "grant", "karl", "Topic:orders_secret", "All", "--deny", "--yes")
    secured.good("acl", "grant", "karl", "Topic:*", "Sub", "--from", "10.0.0.0/8", "--yes")
    allowed = secured.good("acl", "explain", "karl", "Pub", "Topic:orders", "-o", "json").json
    assert (allowed["outcome"], allowed["cause"]) == ("allowed", "by the entry of Topic:orders*")
    assert [entry["why"] for entry in allowed["entries"]] == ["decides", "another resource", "another action"]
    denied = secured("acl", "explain", "karl", "Topic:orders_secret", "Pub")
    assert denied.code == 1
    assert "refused: by the entry of Topic:orders_secret" in denied.out
    somewhere = secured("acl", "explain", "karl", "Sub", "Topic:x")
    assert somewhere.code == 1
    assert "--from IP" in somewhere.err
    assert secured.good("acl", "explain", "karl", "Sub", "Topic:x", "--from", "10.1.2.3").code == 0
    retries = secured("acl", "explain", "karl", "Sub", "Topic:%RETRY%billing", "-o", "json").json
    assert retries["resource"] == "Group:billing"
    secured.good("user", "disable", "karl", "--yes")
    assert "disabled" in secured("acl", "explain", "karl", "Pub", "Topic:orders").out
    assert "no entry limits" in secured.good("acl", "explain", "root", "Delete", "Cluster:x").out


@pytest.mark.mission("AC-19")
def test_an_explanation_says_where_brokers_would_not_agree(secured: Comet) -> None:
    secured.good("user", "create", "kurt")
    secured.good("acl", "grant", "kurt", "Topic:t", "Pub", "--broker", "broker-a", "--yes")
    explained = secured.good("acl", "explain", "kurt", "Pub", "Topic:t")
    assert "broker-b know kurt otherwise: this is what broker-a decides" in explained.err
    assert secured.good("acl", "list", "kurt", "-o", "json").json[0]["differs"] == ["broker-b"]


@pytest.mark.mission("AC-19")
def test_what_is_explained_is_what_the_broker_does(secured: Comet) -> None:
    password = secured.good("user", "create", "lena", "-o", "json").json["password"]
    secured.good("topic", "create", "ExplainedTopic")
    keys = ("--access-key", "lena", "--secret-key", password)
    for grant, code in ((("Topic:Explained*", "Pub"), 0), (("Topic:ExplainedTopic", "Pub", "--deny"), 7)):
        secured.good("acl", "grant", "lena", *grant, "--yes")
        explained = secured("acl", "explain", "lena", "Pub", "Topic:ExplainedTopic", "--from", "127.0.0.1")
        assert (explained.code == 0) == (code == 0)
        assert secured("send", "ExplainedTopic", "x", *keys).code == code


@pytest.mark.mission("AC-19")
def test_accounts_of_rocketmq_4_are_planned_then_carried_over(secured: Comet) -> None:
    plan = secured.good("acl", "migrate", OLD_ACL, "-o", "json")
    outcomes = {row["user"]: row["outcome"] for row in plan.json}
    assert (outcomes["oldshop"], outcomes["oldadmin"]) == ("create", "create")
    assert outcomes["tooshort"].startswith("left out: the password has 7 characters")
    assert "10.10.103.*" in plan.err
    assert "192.168.0.7" in plan.err
    assert "--yes" in plan.err
    assert "12345678" not in plan.out + plan.err
    assert "oldshop" not in secured.good("user", "list").out
    done = secured.good("acl", "migrate", OLD_ACL, "--yes")
    assert "created 2 users, left 1 as they are" in done.err
    rows = secured.good("acl", "list", "oldshop", "-o", "json").json
    assert {(row["policy"], row["resource"], tuple(row["actions"]), row["decision"]) for row in rows} == {
        ("Custom", "Topic:orders", ("Pub", "Sub"), "Allow"),
        ("Custom", "Topic:audit", ("All",), "Deny"),
        ("Custom", "Group:billing", ("Sub",), "Allow"),
        ("Default", "Topic:*", ("All",), "Deny"),
        ("Default", "Group:*", ("Sub",), "Allow"),
    }
    keys = ("--access-key", "oldadmin", "--secret-key", "87654321")
    secured.good("user", "list", *keys)
    again = secured.good("acl", "migrate", OLD_ACL, "--yes", "-o", "json")
    assert {row["outcome"] for row in again.json if row["user"] != "tooshort"} == {"exists, left as it is"}


@pytest.mark.mission("AC-19")
def test_a_conf_directory_is_read_in_rocketmqs_order(secured: Comet, tmp_path: Path) -> None:
    (tmp_path / "conf" / "acl").mkdir(parents=True)
    account = "accounts: [{{accessKey: twice, secretKey: {}}}]\n"
    (tmp_path / "conf" / "plain_acl.yml").write_text(account.format("from-plain-acl"))
    (tmp_path / "conf" / "acl" / "one.yaml").write_text(account.format("from-directory"))
    (tmp_path / "conf" / "tools.yml").write_text("accessKey: a\nsecretKey: b\n")
    ran = secured.good("acl", "migrate", tmp_path / "conf", "--yes")
    assert "appears again, the first one counts" in ran.err
    assert secured("user", "list", "--access-key", "twice", "--secret-key", "from-directory").code == 7
    refused = secured("user", "list", "--access-key", "twice", "--secret-key", "from-directory").err
    assert "has no permission" in refused, "it is known: nothing was granted"
    assert secured("acl", "migrate", tmp_path / "none.yml").code == 2


@pytest.mark.mission("AC-19")
def test_mqadmins_letters_do_the_same(secured: Comet, secured_cluster: SyncCluster) -> None:
    at = ("-n", secured_cluster.namesrv)
    made = secured.good("mqadmin", "createUser", *at, "-c", "DefaultCluster", "-u", "mira", "-p", "marker-of-mira")
    assert "marker" not in made.out + made.err
    entry = ("-s", "User:mira", "-r", "Topic:m*", "-a", "Pub,Sub", "-i", "10.0.0.0/8,127.0.0.1", "-d", "Deny")
    secured.good("mqadmin", "createAcl", *at, "-c", "DefaultCluster", *entry)
    (row,) = secured.good("acl", "list", "mira", "-o", "json").json
    assert (row["resource"], row["decision"], row["sources"]) == ("Topic:m*", "Deny", ["10.0.0.0/8", "127.0.0.1"])
    assert "Topic:m*" in secured.good("mqadmin", "getAcl", *at, "-s", "User:mira").out
    secured.good("mqadmin", "updateUser", *at, "-u", "mira", "-s", "disable")
    assert secured.good("user", "list", "mira", "-o", "json").json[0]["enabled"] is False
    secured.good("mqadmin", "updateUser", *at, "-u", "mira", "-s", "enable")
    assert "mira" in secured.good("mqadmin", "listUser", *at, "-f", "mir").out
    secured.good("mqadmin", "updateUser", *at, "-u", "mira", "-p", "marker-again")
    assert secured("user", "list", "--access-key", "mira", "--secret-key", "marker-again").code == 7
    secured.good("mqadmin", "deleteAcl", *at, "-s", "User:mira", "-r", "Topic:m*")
    secured.good("mqadmin", "deleteUser", *at, "-u", "mira")
    assert "mira" not in secured.good("user", "list").out
