"""Where a client's keys come from."""

from pathlib import Path

import pytest

from cometmq import Client
from cometmq.auth.signature import ACCESS_KEY
from cometmq.client.cluster.credentials import Credentials, configured, configured_tls
from cometmq.errors import ConfigError
from cometmq.net.tls import ClientTls
from cometmq.wire.codes import Request
from tests.support.clusters import scripted_cluster

BOTH = {"COMETMQ_ACCESS_KEY": "env-ak", "COMETMQ_SECRET_KEY": "env-sk"}


@pytest.mark.mission("AC-16")
def test_arguments_come_before_the_environment_and_nothing_is_mixed() -> None:
    assert configured("ak", "sk", None, BOTH) == Credentials("ak", "sk")
    assert configured(None, None, None, BOTH) == Credentials("env-ak", "env-sk")
    assert configured(None, None, "token", BOTH) == Credentials("env-ak", "env-sk", "token")
    assert configured(None, None, None, {**BOTH, "COMETMQ_SECURITY_TOKEN": "t"}) == Credentials("env-ak", "env-sk", "t")
    assert configured("", "", None, BOTH) is None
    assert configured(None, None, None, {}) is None


@pytest.mark.mission("AC-16")
def test_the_environment_may_name_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from-file\n")
    environment = {**BOTH, "COMETMQ_SECRET_KEY": f"@{tmp_path}/secret"}
    assert configured(None, None, None, environment) == Credentials("env-ak", "from-file")


@pytest.mark.mission("AC-16")
@pytest.mark.parametrize(
    ("arguments", "environment", "cause"),
    [
        (("ak", None), {}, "access_key is given and secret_key is not"),
        ((None, "marker"), {}, "secret_key is given and access_key is not"),
        ((None, None), {"COMETMQ_ACCESS_KEY": "ak"}, "COMETMQ_ACCESS_KEY is given and COMETMQ_SECRET_KEY is not"),
        ((None, None), {"COMETMQ_SECRET_KEY": "marker"}, "COMETMQ_SECRET_KEY is given and COMETMQ_ACCESS_KEY is not"),
    ],
)
def test_half_a_pair_is_refused_and_not_shown(
    arguments: tuple[str | None, str | None], environment: dict[str, str], cause: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        configured(*arguments, None, environment)
    assert cause in str(refused.value)
    assert "marker" not in str(refused.value)


@pytest.mark.mission("AC-16")
def test_a_token_without_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match="security_token goes with"):
        configured(None, None, "token", {})


@pytest.mark.mission("AC-16")
def test_no_secret_is_in_a_repr() -> None:
    client = Client("127.0.0.1:1", access_key="ak", secret_key="marker", security_token="marker")
    shown = repr(Credentials("ak", "marker", "marker")) + repr(client.instance.options) + repr(client)
    assert "marker" not in shown


@pytest.mark.mission("AC-16")
async def test_a_client_signs_with_the_keys_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in BOTH.items():
        monkeypatch.setenv(name, value)
    async with scripted_cluster("a") as cluster, cluster.client() as client, client.producer("pg") as producer:
        await producer.send("T", b"x")
        (sent,) = [command for command in cluster["a"].asked if command.code == Request.SEND_MESSAGE_V2]
        assert sent.ext[ACCESS_KEY] == "env-ak"


@pytest.mark.mission("AC-16")
def test_tls_comes_from_the_argument_or_the_environment() -> None:
    own = ClientTls(trust_path="own.pem")
    assert configured_tls(own, {"COMETMQ_TLS_CA": "ca.pem"}) is own
    assert configured_tls(None, {}) is None
    assert configured_tls(None, {"COMETMQ_TLS": "false"}) is None
    assert configured_tls(None, {"COMETMQ_TLS": "true"}) == ClientTls()
    named = {"COMETMQ_TLS_CA": "ca.pem", "COMETMQ_TLS_NAME": "mq", "COMETMQ_TLS_CERT": "c.pem", "COMETMQ_TLS_KEY": "k"}
    assert configured_tls(None, named) == ClientTls(
        trust_path="ca.pem", server_name="mq", certificate_path="c.pem", key_path="k"
    )
    assert configured_tls(None, {"COMETMQ_TLS_INSECURE": "true"}) == ClientTls(verify=False)
    with pytest.raises(ConfigError, match="COMETMQ_TLS is 'yes'"):
        configured_tls(None, {"COMETMQ_TLS": "yes"})
    with pytest.raises(ConfigError, match="COMETMQ_TLS_CERT is given and COMETMQ_TLS_KEY is not"):
        configured_tls(None, {"COMETMQ_TLS_CERT": "c.pem"})
