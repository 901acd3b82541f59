"""A server whose access control does not fit together does not start, and says which setting is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cometmq.auth import startup
from cometmq.auth.startup import AuthorizationSettings
from cometmq.auth.users import User, Users
from cometmq.config import ServerConfig
from cometmq.errors import ConfigError

ON: dict[str, Any] = {"authentication_enabled": True}
ROOT = '{"username":"root","password":"marker-password"}'
INNER = '{"accessKey":"inner","secretKey":"marker-secret"}'


@pytest.mark.parametrize(
    ("config", "authorization", "named"),
    [
        ({}, {"enabled": True}, "authenticationEnabled"),
        ({"authentication_provider": "com.example.Mine"}, {}, "authenticationProvider"),
        ({"authentication_metadata_provider": "x"}, {}, "authenticationMetadataProvider"),
        (ON, {"provider": "x"}, "authorizationProvider"),
        (ON, {"strategy": "x"}, "authorizationStrategy"),
        ({"authentication_whitelist": "a"}, {}, "authenticationWhitelist"),
        ({"authentication_whitelist": "34, 3001"}, {}, "3001"),
        (ON, {"whitelist": "25"}, "authorizationWhitelist"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    config: dict[str, Any], authorization: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        startup.read_rules(ServerConfig(**config), AuthorizationSettings(**authorization), "c")


def test_rocketmqs_own_class_names_are_accepted() -> None:
    strategy = "org.apache.rocketmq.auth.authentication.strategy.StatefulAuthenticationStrategy"
    config = ServerConfig(
        authentication_enabled=True,
        authentication_provider=startup.PROVIDERS["authenticationProvider"],
        authentication_metadata_provider=startup.PROVIDERS["authenticationMetadataProvider"],
        authentication_strategy=strategy,
        authentication_whitelist=" 34 , 105",
    )
    rules = startup.read_rules(config, AuthorizationSettings(enabled=True, whitelist="361"), "c")
    assert (rules.authentication, rules.authorization) == (True, True)
    assert rules.unauthenticated_codes == frozenset((34, 105))
    assert rules.unauthorized_codes == frozenset((361,))


def test_a_user_may_be_in_a_file_that_the_setting_names(tmp_path: Path) -> None:
    (tmp_path / "first.json").write_text(ROOT.replace(",", ",\n"))
    config = ServerConfig(init_authentication_user=f"@{tmp_path}/first.json", inner_credentials=f"@{tmp_path}/none")
    user = startup.read_init_user(config)
    assert user is not None
    assert (user.username, user.password) == ("root", "marker-password")
    with pytest.raises(ConfigError, match="innerClientAuthenticationCredentials: cannot read"):
        startup.read_inner_credentials(config)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"username":"marker"}', '{"username":"","password":"marker"}', '"marker"']
)
def test_a_bad_user_setting_is_refused_without_showing_it(text: str) -> None:
    for config, key in (
        (ServerConfig(init_authentication_user=text), "initAuthenticationUser"),
        (ServerConfig(inner_credentials=text), "innerClientAuthenticationCredentials"),
    ):
        with pytest.raises(ConfigError, match=key) as caught:
            startup.add_configured_users(config, Users())
        assert "marker" not in str(caught.value)


def test_configured_users_are_super_users_and_never_overwrite_one() -> None:
    users = Users()
    config = ServerConfig(init_authentication_user=ROOT, inner_credentials=INNER)
    assert startup.add_configured_users(config, users) == []
    assert users.table["root"] == User("root", "marker-password", is_super=True)
    assert users.table["inner"].is_super
    users.put(User("root", "changed by hand", is_super=True))
    (warning,) = startup.add_configured_users(config, users)
    assert "root" in warning
    assert "marker" not in warning
    assert users.table["root"].password == "changed by hand"


def test_servers_that_share_a_persons_user_are_warned_of() -> None:
    shared = ROOT.replace("root", "inner")
    warnings = startup.add_configured_users(
        ServerConfig(init_authentication_user=shared, inner_credentials=INNER), Users()
    )
    assert any("both inner" in warning for warning in warnings)


def test_a_server_into_which_nobody_can_log_in_does_not_start() -> None:
    rules = startup.read_rules(ServerConfig(**ON), AuthorizationSettings(), "c")
    with pytest.raises(ConfigError, match="initAuthenticationUser"):
        startup.check_somebody_can_log_in(rules, Users())


def test_open_doors_are_named() -> None:
    config = ServerConfig(authentication_whitelist="34", **ON)
    rules = startup.read_rules(config, AuthorizationSettings(), "c")
    doors = "\n".join(startup.open_doors(config, rules))
    assert "tls.server.mode=enforcing" in doors
    assert "request code 34" in doors
    closed = ServerConfig(tls_mode="enforcing", **ON)
    assert startup.open_doors(closed, startup.read_rules(closed, AuthorizationSettings(), "c")) == []


def test_address_lists_are_read_or_refused() -> None:
    blocks = startup.read_blocks("haAllowedAddresses", "10.0.0.0/8, ::1")
    assert startup.contains(blocks, "10.9.9.9")
    assert startup.contains(blocks, "::1")
    assert not startup.contains(blocks, "192.0.2.1")
    assert not startup.contains((), "10.0.0.1")
    with pytest.raises(ConfigError, match=r"haAllowedAddresses.*host"):
        startup.read_blocks("haAllowedAddresses", "host")


def test_no_setting_shows_a_secret() -> None:
    config = ServerConfig(init_authentication_user=ROOT, inner_credentials=INNER)
    shown = f"{config!r} {startup.read_init_user(config)!r} {startup.read_inner_credentials(config)!r}"
    assert "marker" not in shown
