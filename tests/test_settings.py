"""Settings: texts become typed values, and nothing that does not fit gets in."""

from dataclasses import dataclass

import pytest

from cometmq.config import NameServerConfig
from cometmq.settings import Live, SettingError, read, read_inert, setting, settings_of, texts_of


@dataclass(frozen=True)
class Sample:
    port: int = setting("listenPort", 9876, most=65535)
    name: str = setting("name", "x", Live.NEVER)
    mode: str = setting("mode", "off", choices=("off", "on"))
    switch: bool = setting("switchEnable", False, Live.NOW)
    password: str = setting("password", "", Live.NEVER, secret=True)


def test_texts_become_typed_values_and_unknown_keys_are_handed_back() -> None:
    texts = {"listenPort": " 10911 ", "switchEnable": "TRUE", "mode": "on", "other.key": " kept as it is"}
    config, unknown = read(Sample(), texts)
    assert config == Sample(port=10911, switch=True, mode="on")
    assert unknown == {"other.key": " kept as it is"}


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("listenPort", "70000", "listenPort=70000 is outside 0 to 65535"),
        ("listenPort", "-1", "listenPort=-1 is outside 0 to 65535"),
        ("listenPort", "1_000", "listenPort=1_000 is not a whole number"),
        ("listenPort", "", "listenPort= is not a whole number"),
        ("listenPort", "9" * 5000, "is not a whole number"),
        ("listenPort", "٣", "is not a whole number"),
        ("switchEnable", "yes", "switchEnable=yes is neither true nor false"),
        ("mode", "half", "mode=half is not one of off, on"),
    ],
)
def test_a_text_that_does_not_fit_is_refused_with_key_value_and_limit(key: str, text: str, message: str) -> None:
    with pytest.raises(SettingError) as refused:
        read(Sample(), {key: text})
    assert message in str(refused.value)


def test_what_is_written_reads_back_and_secrets_are_written_only_on_request() -> None:
    config = Sample(port=1, switch=True, password="p")
    assert texts_of(config) == {"listenPort": "1", "name": "x", "mode": "off", "switchEnable": "true"}
    assert read(Sample(), texts_of(config, secrets=True)) == (config, {})
    assert "password" not in repr(config)


def test_a_setting_without_effect_is_kept_as_text_but_must_be_of_its_kind() -> None:
    defaults = {"threads": "8", "nettyEnable": "true", "name": "x"}
    assert read_inert(defaults, {"threads": "16", "else": "e"}) == {**defaults, "threads": "16", "else": "e"}
    for wrong in ({"threads": "many"}, {"nettyEnable": "1"}):
        with pytest.raises(SettingError):
            read_inert(defaults, wrong)


def test_nothing_that_names_a_file_can_be_changed_in_a_running_process() -> None:
    for key, (_, rule) in settings_of(NameServerConfig).items():
        if any(word in key.lower() for word in ("path", "home", "file", "password", "tls", "blacklist")):
            assert rule.live is Live.NEVER, key
