"""Writes docs/api.md, the reference of the client, from the docstrings and signatures of its public names.

    python scripts/api_reference.py            write it
    python scripts/api_reference.py --check    exit 1 if it is out of date
"""

import dataclasses
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"

# Heading, what it is about, names as module:name.
SECTIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "The client",
        "`from cometmq import Client`",
        ("cometmq.client.client:Client", "cometmq.client.options:ClientOptions", "cometmq.net.tls:ClientTls"),
    ),
    (
        "Producers",
        "",
        (
            "cometmq.client.produce.producer:Producer",
            "cometmq.client.options:ProducerOptions",
            "cometmq.client.produce.outgoing:MessageKeywords",
            "cometmq.client.messages:SendReceipt",
            "cometmq.client.messages:SendStatus",
            "cometmq.client.produce.selectors:LeastLag",
        ),
    ),
    (
        "Transactions",
        "",
        (
            "cometmq.client.produce.transactions:TransactionProducer",
            "cometmq.client.produce.transactions:Transaction",
            "cometmq.client.produce.transactions:Tx",
        ),
    ),
    (
        "Consumers",
        "",
        (
            "cometmq.client.consume.iterator:Consumer",
            "cometmq.client.consume.iterator:Delivered",
            "cometmq.client.consume.push:PushConsumer",
            "cometmq.client.options:ConsumerOptions",
            "cometmq.client.options:StartFrom",
            "cometmq.client.consume.outcomes:Retry",
            "cometmq.client.consume.outcomes:Reject",
            "cometmq.client.consume.outcomes:Outcome",
            "cometmq.client.messages:Message",
        ),
    ),
    (
        "Pull consumers",
        "",
        (
            "cometmq.client.consume.pull:PullConsumer",
            "cometmq.client.consume.pull:PullOptions",
            "cometmq.client.consume.pull:Batch",
        ),
    ),
    (
        "Administration",
        "What the methods answer is in `cometmq.client.admin`.",
        (
            "cometmq.client.admin:Admin",
            "cometmq.client.admin:Lag",
            "cometmq.client.admin:Move",
            "cometmq.client.admin:AccessEntry",
            "cometmq.client.admin:StoredCopy",
            "cometmq.client.admin:Page",
            "cometmq.client.admin:Waiting",
            "cometmq.client.admin:HalfMessage",
        ),
    ),
    (
        "Codecs",
        "",
        ("cometmq.client.codecs:Codec", "cometmq.client.codecs:typed_codec"),
    ),
    (
        "Testing",
        "See [testing.md](testing.md).",
        ("cometmq.testing.cluster:Cluster", "cometmq.testing.cluster:EmbeddedBroker"),
    ),
)

# Called by the client's own parts.
INNER = {
    "on_check", "on_reset", "on_members_changed", "subscriptions", "positions", "running_info", "start_from",
    "PullConsumer.consume_directly", "settle", "submit", "adopt", "ask", "ask_name_server",
    "ask_name_servers", "masters", "masters_of", "members", "name_servers", "wrap", "strip", "shown", "instance",
    "register_producer",
}  # fmt: skip
SYNC_NOTE = (
    "Everything here is for asyncio. [`cometmq.sync`](../src/cometmq/sync/__init__.py) has the same names and "
    "arguments for programs without it: `with` for `async with`, `for` for `async for`, no `await`."
)


def page() -> str:
    parts = [
        "# Reference of the client",
        "",
        "Written by `scripts/api_reference.py` from the docstrings; do not edit. "
        "[tutorial-client.md](tutorial-client.md) is the way in.",
        "",
        SYNC_NOTE,
        "",
    ]
    for heading, about, names in SECTIONS:
        parts += [f"## {heading}", "", *([about, ""] if about else [])]
        for name in names:
            parts += described(*name.split(":"))
    parts += errors()
    return "\n".join(parts).rstrip() + "\n"


def described(module: str, name: str) -> list[str]:
    thing = getattr(importlib.import_module(module), name)
    lines = [f"### {name}", ""]
    if not inspect.isclass(thing):
        return [*lines, f"`{name}{signature(thing)}`", "", *block(inspect.getdoc(thing))]
    doc = thing.__doc__ if thing.__doc__ and not thing.__doc__.startswith(f"{name}(") else None
    lines += block(inspect.cleandoc(doc) if doc else None)
    lines += fields(thing)
    for method_name, method in methods(thing):
        lines += member(method_name, method)
    return lines


def fields(thing: type[Any]) -> list[str]:
    """Options and values: a table of their fields."""
    if dataclasses.is_dataclass(thing):
        rows = [(field.name, annotation(field.type), default(field)) for field in dataclasses.fields(thing)]
    elif hasattr(thing, "__struct_fields__"):
        kinds: dict[str, Any] = {}
        for base in reversed(thing.__mro__):
            kinds.update(vars(base).get("__annotations__", {}))
        rows = [(name, annotation(kinds[name]), "") for name in thing.__struct_fields__]
    elif issubclass(thing, dict):
        rows = [(name, annotation(kind), "") for name, kind in thing.__annotations__.items()]
    else:
        return []
    table = [f"| `{name}` | {escaped(kind)} | {escaped(value)} |" for name, kind, value in rows if name != "slip"]
    return ["| field | type | default |", "|---|---|---|", *table, ""]


def default(field: "dataclasses.Field[Any]") -> str:
    if field.default is not dataclasses.MISSING:
        value = getattr(field.default, "value", field.default)
        return f"`{sorted(value)!r}`" if isinstance(value, frozenset) else f"`{value!r}`"
    if field.default_factory is not dataclasses.MISSING:
        return f"`{getattr(field.default_factory, '__name__', '...')}()`"
    return ""


def annotation(kind: Any) -> str:
    text = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    return f"`{plain(text)}`" if text else ""


def methods(thing: type[Any]) -> list[tuple[str, Any]]:
    found: dict[str, Any] = {}
    for kind in reversed(thing.__mro__):
        if kind.__module__.startswith("cometmq."):
            found.update({name: value for name, value in vars(kind).items() if is_public(kind, name, value)})
    return sorted(found.items(), key=lambda pair: pair[0])


def is_public(kind: type[Any], name: str, value: Any) -> bool:
    if name.startswith("_") or name in INNER or f"{kind.__name__}.{name}" in INNER:
        return False
    return inspect.isfunction(value) or isinstance(value, property)


def member(name: str, method: Any) -> list[str]:
    if isinstance(method, property):
        returns = inspect.signature(method.fget).return_annotation if method.fget is not None else ""
        return [f"**`{name}`** : {annotation(returns)}  ", *block(inspect.getdoc(method))]
    word = "async " if inspect.iscoroutinefunction(method) else ""
    if inspect.isasyncgenfunction(inspect.unwrap(method)):
        word = "async for " if inspect.isasyncgenfunction(method) else "async with "
    return [f"**`{word}{name}{signature(method)}`**  ", *block(inspect.getdoc(method))]


def signature(function: Any) -> str:
    given = inspect.signature(function)
    parameters = [parameter for name, parameter in given.parameters.items() if name != "self"]
    return plain(str(given.replace(parameters=parameters)))


def plain(text: str) -> str:
    """Names without the modules they are in."""
    text = re.sub(r"(?<![\w.])(?:[a-z_]+\.)+(?=[A-Z])", "", text)
    text = re.sub(r"(?<![\w.])(?:datetime|collections\.abc|concurrent\.futures\.\w+)\.", "", text)
    text = re.sub(r"<(?:function|class) '?([\w.]+)[^>]*>", r"\1", text)
    text = re.sub(r"<[\w.]*?(\w+) object at 0x[0-9a-f]+>", r"\1", text)
    text = re.sub(r"(-> |: |^)'([^']*)'", r"\1\2", text)  # annotations that are written as text
    return text.replace("~T", "T").replace("'", '"')


def block(doc: str | None) -> list[str]:
    """Prose as it is; what is laid out in columns keeps its columns."""
    if not doc:
        return [""]
    lines: list[str] = []
    for paragraph in doc.split("\n\n"):
        if re.search(r"\S {2,}\S", paragraph):
            lines += ["```text", *paragraph.splitlines(), "```", ""]
        else:
            lines += [*paragraph.splitlines(), ""]
    return lines


def escaped(text: str) -> str:
    return text.replace("|", "\\|")


def errors() -> list[str]:
    module = importlib.import_module("cometmq.errors")
    return ["## Errors", "", "In `cometmq.errors`.", "", "```text", *(module.__doc__ or "").strip().splitlines(), "```"]


def main(arguments: list[str]) -> int:
    text = page()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    if "--check" in arguments:
        print("docs/api.md is out of date: run python scripts/api_reference.py")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    print("wrote docs/api.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
