"""The key-value config: namespace -> key -> value, kept in one JSON file that RocketMQ reads too.

    {"configTable":{"ORDER_TOPIC_CONFIG":{"TopicA":"broker-a:4;broker-b:4"}}}

A change is answered when it is on disk, and seen by readers from then on: the table in memory is replaced after the
new file is in place. So a save that fails changes nothing, and the caller is told. (RocketMQ changes memory first,
logs a failed save and answers success.) Changes wait for each other; readers never wait. A change that has begun is
finished even if its caller is cancelled, so table and file never differ.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from cometmq import state_file
from cometmq.errors import RequestError
from cometmq.wire.codes import Response

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"

NAME_CHARS_MAX: Final = 255

Table = dict[str, dict[str, str]]


class _File(msgspec.Struct):
    table: dict[str, dict[str, str | None] | None] = msgspec.field(name="configTable", default_factory=dict)


_decoder = msgspec.json.Decoder(_File)


def decode(content: bytes) -> Table:
    """Raises ValueError for anything but a table. Nulls, which Java can write, count as absent."""
    namespaces = _decoder.decode(content).table
    return {
        namespace: {key: value for key, value in (entries or {}).items() if value is not None}
        for namespace, entries in namespaces.items()
    }


def encode(table: Table) -> bytes:
    return msgspec.json.encode({"configTable": table}, order="sorted")


def _refusal(cause: str) -> RequestError:
    return RequestError(Response.SYSTEM_ERROR, f"nothing was changed: {cause}")


class KeyValues:
    """The table and its file."""

    def __init__(
        self, path: Path, bytes_max: int, entries_max: int = 10_000, value_chars_max: int = 65_536
    ) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._entries_max = entries_max
        self._value_chars_max = value_chars_max
        self._table: Table = {}
        self._changing = asyncio.Lock()

    def load(self) -> None:
        """Read the file; StoreError if there is one but no good copy of it."""
        self._table = state_file.load(self._path, decode) or {}

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, name: str) -> dict[str, str] | None:
        """The entries of a namespace; None if it was never used. Not to be changed."""
        return self._table.get(name)

    def __len__(self) -> int:
        return len(self._table)

    def entries(self) -> Iterator[tuple[str, str, str]]:
        for namespace, values in sorted(self._table.items()):
            for key, value in sorted(values.items()):
                yield namespace, key, value

    async def put(self, namespace: str, key: str, value: str | None) -> None:
        """Without a value the namespace comes into being and the key is as if it had never been put."""
        self._check(namespace, key, value)
        await asyncio.shield(self._put(namespace, key, value))

    def _check(self, namespace: str, key: str, value: str | None) -> None:
        """RequestError for what may not be kept."""
        for kind, name in (("namespace", namespace), ("key", key)):
            if len(name) > NAME_CHARS_MAX or not name.isprintable():
                raise _refusal(
                    f"the {kind} {name[:80]!r} has control characters, or more than {NAME_CHARS_MAX} characters"
                )
        if value is not None and len(value) > self._value_chars_max:
            raise _refusal(
                f"the value of {key} has {len(value)} characters, at most {self._value_chars_max} are allowed: "
                "raise kvConfigValueCharsMax"
            )
        count = sum(map(len, self._table.values())) + len(self._table)
        if count >= self._entries_max and key not in self._table.get(namespace, {}):
            raise _refusal(
                f"{count} namespaces and keys are kept, at most {self._entries_max} are allowed: delete some, or raise "
                "kvConfigEntriesMax"
            )

    async def delete(self, namespace: str, key: str) -> None:
        """An absent key is no error."""
        await asyncio.shield(self._delete(namespace, key))

    async def _put(self, namespace: str, key: str, value: str | None) -> None:
        async with self._changing:
            values = {**self._table.get(namespace, {}), key: value}
            await self._replace(namespace, values)

    async def _delete(self, namespace: str, key: str) -> None:
        async with self._changing:
            if self.get(namespace, key) is not None:
                await self._replace(namespace, {**self._table[namespace], key: None})

    async def _replace(self, namespace: str, values: Mapping[str, str | None]) -> None:
        kept = {key: value for key, value in values.items() if value is not None}
        table = {**self._table, namespace: kept}
        content = encode(table)
        if len(content) > self._bytes_max:
            raise RequestError(
                Response.SYSTEM_ERROR,
                f"the key-value table would have {len(content)} bytes, at most {self._bytes_max} are allowed: "
                "delete entries or raise kvConfigBytesMax",
            )
        try:
            await asyncio.to_thread(state_file.save, self._path, content)
        except OSError as error:
            raise RequestError(
                Response.SYSTEM_ERROR, f"nothing was changed: cannot save {self._path.name}: {error.strerror or error}"
            ) from error
        self._table = table
