"""Settings: typed fields of a frozen dataclass, known outside by RocketMQ's own key names.

    @dataclass(frozen=True, slots=True)
    class NameServerConfig:
        listen_port: int = setting("listenPort", 9876, most=65535)

Texts come from a properties file, the command line or request 318; `read()` turns them into the dataclass. A text that
is not of its field's type or range is refused with key, value and limit. Keys that no field has are handed back, not
lost: RocketMQ keeps and shows them too.

`Live` is the allow-list of what a request may change in a running process. Nothing that names a file is on it.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from cometmq.errors import CometError

I32_MAX: Final = 2**31 - 1
DIGITS_MAX: Final = 19
TEXT_CHARS_MAX: Final = 16_384


class Live(enum.Enum):
    """What a request over the wire may do to a setting."""

    NOW = "now"  # change it, with effect at once
    START = "start"  # change it, with effect after a restart
    NEVER = "no"  # nothing


class SettingError(CometError):
    """A setting that cannot be what was asked for; `key` is the one at fault, if it is one."""

    def __init__(self, text: str, key: str = "") -> None:
        super().__init__(text)
        self.key = key


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One key: how its text is read and who may change it."""

    key: str
    live: Live
    least: int
    most: int
    choices: tuple[str, ...]
    secret: bool


def setting(
    key: str,
    default: Any,
    live: Live = Live.START,
    *,
    least: int = 0,
    most: int = I32_MAX,
    choices: tuple[str, ...] = (),
    secret: bool = False,
) -> Any:
    """A dataclass field for `key`; the type of `default` is the type of the setting."""
    rule = Setting(key, live, least, most, choices, secret)
    return dataclasses.field(default=default, metadata={"setting": rule}, repr=not secret)


def settings_of(kind: type[Any]) -> dict[str, tuple[str, Setting]]:
    """Key to (attribute, setting), in the order of the class."""
    fields = dataclasses.fields(kind)
    return {field.metadata["setting"].key: (field.name, field.metadata["setting"]) for field in fields}


C = TypeVar("C")


def read(config: C, texts: Mapping[str, str]) -> tuple[C, dict[str, str]]:
    """`config` with the settings that `texts` has, and the texts whose keys it does not know."""
    known = settings_of(type(config))
    changes: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for key, text in texts.items():
        if key not in known:
            unknown[key] = text
            continue
        attribute, rule = known[key]
        changes[attribute] = _parse(rule, type(getattr(config, attribute)), text.strip())
    return dataclasses.replace(config, **changes), unknown  # type: ignore[type-var]


def read_inert(defaults: Mapping[str, str], texts: Mapping[str, str]) -> dict[str, str]:
    """`texts` over `defaults`. A setting without effect must still be of its default's kind: others read the file."""
    for key in defaults.keys() & texts.keys():
        rule = Setting(key, Live.START, -I32_MAX, I32_MAX, (), False)
        kind = bool if defaults[key] in ("true", "false") else int if defaults[key].isdigit() else str
        _parse(rule, kind, texts[key].strip())
    return {**defaults, **texts}


def texts_of(config: object, *, secrets: bool = False) -> dict[str, str]:
    """Key to text of every setting that has a value; an empty text is no value. With `secrets` only for a file."""
    known = settings_of(type(config)).items()
    texts = {key: _text(getattr(config, name)) for key, (name, rule) in known if secrets or not rule.secret}
    return {key: text for key, text in texts.items() if text}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _parse(rule: Setting, kind: type, text: str) -> Any:
    if kind is bool:
        return _parse_bool(rule, text)
    if kind is int:
        return _parse_int(rule, text)
    if len(text) > TEXT_CHARS_MAX:
        raise SettingError(f"{rule.key} has {len(text)} characters, at most {TEXT_CHARS_MAX} are allowed", rule.key)
    if rule.choices and text not in rule.choices:
        raise SettingError(f"{rule.key}={text[:80]} is not one of {', '.join(rule.choices)}", rule.key)
    return text


def _parse_bool(rule: Setting, text: str) -> bool:
    lower = text.lower()
    if lower not in ("true", "false"):
        raise SettingError(f"{rule.key}={text[:80]} is neither true nor false", rule.key)
    return lower == "true"


def _parse_int(rule: Setting, text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX):
        raise SettingError(f"{rule.key}={text[:80]} is not a whole number", rule.key)
    value = int(text)
    if not rule.least <= value <= rule.most:
        raise SettingError(f"{rule.key}={value} is outside {rule.least} to {rule.most}", rule.key)
    return value
