"""Read the JSON that Java's fastjson writes.

Standard JSON goes through msgspec. What it refuses is read once more by the parser below, which also takes

    {0:"10.0.0.1:10911"}                        a number as key            -> int key
    {{"brokerName":"b","queueId":0}:5}          an object as key           -> `ObjectKey`
    {"x":{"$ref":"$.y"},"y":{"k":"v"}}          an object written before   -> the same object twice

and nothing else that is not standard. A key that is an object turned into text stays text; whoever knows that the
map is keyed by objects decodes it (`bodies.base`).

Paths of references are fastjson's: `$` the document, `@` the container of the reference, `..` the container of that,
`$.a.b[3]` a way down, in which a backslash takes the next character as it is. A path that leads nowhere is null.

Bounds: bytes of the text, depth of nesting, length of a number, and, where references multiply content, its nodes.
An integer in key position, or inside of a key, has at most 64 bits: Python hashes integers modulo 2^61 - 1, so a peer
that may write longer ones fills a dictionary with keys of one hash, and each of them is compared with all before it.
Everything that cannot be read is a `WireError` with the position of the first bad character.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from cometmq.errors import WireError

BYTES_MAX: Final = 256 * 1024 * 1024
DEPTH_MAX: Final = 64
NUMBER_CHARS_MAX: Final = 4300
NODES_MAX: Final = 250_000
# Objects and lists that are looked through one by one.
CONTAINERS_MAX: Final = 200_000
# Values of one text that is converted to types: 0.15 us and 60 bytes for each.
VALUES_MAX: Final = 1_000_000
KEY_MIN: Final = -(2**63)
KEY_MAX: Final = 2**63 - 1

_GAP: Final = r"[ \t\n\r]*+"
_SPACE: Final = re.compile(_GAP)
_STRING: Final = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"')
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][+-]?[0-9]++)?")
# A member with a plain key and a plain string or integer, up to the comma or brace behind it. Offset tables consist of
# these; one match instead of a dozen calls reads such a table in 30 % of the CPU time (16 000 entries, 3 runs).
_PLAIN: Final = r'(?:"([^"\\\x00-\x1f]*+)"|(0|-?[1-9][0-9]{0,17}))'
_PLAIN_MEMBER: Final = re.compile(f"{_GAP}{_PLAIN}{_GAP}:{_GAP}{_PLAIN}{_GAP}([,}}])")
_LITERALS: Final = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}
_PATH_STEP: Final = re.compile(
    r"""\.(?P<name>(?:[^.\[\\]|\\.)+)  | \[(?P<index>[0-9]{1,9})\] | \[(?P<mark>["'])(?P<quoted>.*?)(?P=mark)\]""",
    re.VERBOSE | re.DOTALL,
)
_decoder: Final = msgspec.json.Decoder()


class ObjectKey(tuple[tuple[Any, Any], ...]):
    """An object in key position: its members, sorted by name, as a hashable value."""

    __slots__ = ()

    def members(self) -> dict[Any, Any]:
        return dict(self)


def loads(data: bytes | str) -> Any:
    """The value of a JSON text. A reference to something around itself makes a cyclic value."""
    raw = _bytes_of(data)
    tree = _parse(raw)
    if b'"$ref"' in raw:
        _References(tree, cut_cycles=False).resolve()
    return tree


def loads_finite(data: bytes | str, other_forms_bytes_max: int = BYTES_MAX) -> Any:
    """The same for conversion to types: no null members or elements, no cycles, references to at most NODES_MAX nodes.

    A reference to something around itself is dropped like a null: only derived getters of Java beans make them.
    What msgspec does not read takes fifty times as long, and may have `other_forms_bytes_max` bytes.
    """
    raw = _bytes_of(data)
    if len(raw) > CONTAINERS_MAX and (containers := raw.count(b"{") + raw.count(b"[")) > CONTAINERS_MAX:
        raise WireError(f"JSON text with {containers} objects and lists, the limit is {CONTAINERS_MAX}")
    check_values(raw)
    tree = _parse(raw, other_forms_bytes_max)
    if b'"$ref"' in raw:
        if len(raw) > other_forms_bytes_max:
            raise WireError(f"JSON text of {len(raw)} bytes has references, the limit is {other_forms_bytes_max}")
        _References(tree, cut_cycles=True).resolve()
        _measure(tree, 1, {})
    _drop_nulls(tree)
    return tree


def check_values(raw: bytes) -> None:
    """WireError for more values than a program can read without standing still; commas inside of strings count too."""
    if len(raw) > VALUES_MAX and (values := raw.count(b",")) > VALUES_MAX:
        raise WireError(f"JSON text with {values} values, the limit is {VALUES_MAX}")


def _bytes_of(data: bytes | str) -> bytes:
    if len(data) > BYTES_MAX:
        raise WireError(f"JSON text of {len(data)} bytes, the limit is {BYTES_MAX}")
    try:
        return data.encode() if isinstance(data, str) else data
    except UnicodeEncodeError as error:
        raise WireError(f"JSON text has a lone surrogate at character {error.start}") from None


def _parse(data: bytes, other_forms_bytes_max: int = BYTES_MAX) -> Any:
    try:
        tree = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if len(data) > other_forms_bytes_max:
            raise WireError(
                f"JSON text of {len(data)} bytes is not standard JSON ({error}), the limit is {other_forms_bytes_max}"
            ) from None
        return _parse_dialect(data)
    except RecursionError:
        raise _too_deep() from None
    if data.count(b"{") + data.count(b"[") > DEPTH_MAX:
        _check_depth(tree)
    return tree


def _too_deep() -> WireError:
    return WireError(f"JSON is nested more than {DEPTH_MAX} deep")


def _check_depth(tree: Any) -> None:
    level = [tree]
    for _ in range(DEPTH_MAX):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise _too_deep()


def _parse_dialect(data: bytes) -> Any:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise WireError(f"JSON text is not UTF-8 at byte {error.start}") from None
    parser = _Parser(text)
    value = parser.value(0)
    parser.end()
    return value


class _Parser:
    """Recursive descent; `at` is the index of the next character."""

    __slots__ = ("text", "at", "keys")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.keys = 0  # how many objects in key position surround this

    def value(self, depth: int) -> Any:
        mark = self._peek()
        if mark == "{":
            return self._object(depth + 1)
        if mark == "[":
            return self._array(depth + 1)
        if mark == '"':
            return self._string()
        if mark in _LITERALS:
            return self._literal(mark)
        return self._number()

    def end(self) -> None:
        if self._peek():
            raise self._error("the end")

    def _peek(self) -> str:
        space = _SPACE.match(self.text, self.at)
        assert space is not None
        self.at = space.end()
        return self.text[self.at : self.at + 1]

    def _expect(self, marks: str) -> str:
        mark = self._peek()
        if not mark or mark not in marks:
            raise self._error(" or ".join(marks))
        self.at += 1
        return mark

    def _object(self, depth: int) -> dict[Any, Any]:
        if depth > DEPTH_MAX:
            raise _too_deep()
        self.at += 1
        members: dict[Any, Any] = {}
        if self._peek() == "}":
            self.at += 1
            return members
        while True:
            plain = _PLAIN_MEMBER.match(self.text, self.at)
            if plain is not None:
                name, number_name, word, number, mark = plain.groups()
                members[int(number_name) if name is None else name] = int(number) if word is None else word
                self.at = plain.end()
                if mark == "}":
                    return members
                continue
            key = self._key(depth)
            self._expect(":")
            members[key] = self.value(depth)
            if self._expect(",}") == "}":
                return members

    def _key(self, depth: int) -> Any:
        mark = self._peek()
        if mark == '"':
            return self._string()
        self.keys += 1
        key = _freeze(self._object(depth + 1)) if mark == "{" else self._number()
        self.keys -= 1
        if not isinstance(key, (int, ObjectKey)):
            raise self._error("an integer key")
        return key

    def _array(self, depth: int) -> list[Any]:
        if depth > DEPTH_MAX:
            raise _too_deep()
        self.at += 1
        elements: list[Any] = []
        if self._peek() == "]":
            self.at += 1
            return elements
        while True:
            elements.append(self.value(depth))
            if self._expect(",]") == "]":
                return elements

    def _string(self) -> str:
        found = _STRING.match(self.text, self.at)
        if found is None:
            raise self._error("a complete string")
        token = found.group()
        if "\\" in token:
            try:
                text: str = _decoder.decode(token.encode())
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise self._error("a string with valid escapes") from None
        else:
            text = token[1:-1]
        self.at = found.end()
        return text

    def _literal(self, mark: str) -> bool | None:
        word, value = _LITERALS[mark]
        if not self.text.startswith(word, self.at):
            raise self._error(word)
        self.at += len(word)
        return value

    def _number(self) -> int | float:
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            raise self._error("a value")
        token = found.group()
        if len(token) > NUMBER_CHARS_MAX:
            raise self._error(f"a number of at most {NUMBER_CHARS_MAX} characters")
        number: int | float
        if found.group(1) is None and found.group(2) is None:
            number = int(token)
            if self.keys and not KEY_MIN <= number <= KEY_MAX:
                raise self._error("a key with integers of at most 64 bits")
        else:
            number = float(token)
            if number in (float("inf"), float("-inf")):
                raise self._error("a number in the range of a double")
        self.at = found.end()
        return number

    def _error(self, expected: str) -> WireError:
        found = self.text[self.at : self.at + 1]
        shown = f"found {found!r}" if found else "the text ends"
        return WireError(f"JSON malformed at character {self.at}: expected {expected}, {shown}")


def _freeze(value: Any) -> Any:
    if isinstance(value, dict):
        return ObjectKey(sorted(((k, _freeze(v)) for k, v in value.items()), key=lambda member: str(member[0])))
    if isinstance(value, list):
        return tuple(_freeze(element) for element in value)
    return value


def _drop_nulls(tree: Any) -> None:
    seen: set[int] = set()
    stack = [tree]
    while stack:
        node = stack.pop()
        if not isinstance(node, (dict, list)) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, dict):
            for key in [key for key, value in node.items() if value is None]:
                del node[key]
            stack.extend(node.values())
        else:
            node[:] = [element for element in node if element is not None]
            stack.extend(node)


class _References:
    """Replaces every `{"$ref": path}` of a tree by what the path names.

    All references are found first, because a path may lead through, or to, another one further down. Each is
    resolved once; one that is asked for while it is being resolved depends on itself and is null.
    """

    def __init__(self, tree: Any, cut_cycles: bool) -> None:
        self._tree = tree
        self._cut_cycles = cut_cycles
        self._parents: dict[int, Any] = {}
        # By identity of the reference, which the entry keeps alive: its container, its key there, itself.
        self._sites: dict[int, tuple[Any, Any, dict[str, str]]] = {}
        self._resolved: dict[int, Any] = {}
        self._find()

    def resolve(self) -> None:
        for reference, (container, key, _) in self._sites.items():
            container[key] = self._target(reference, 0)

    def _find(self) -> None:
        stack = [self._tree] if isinstance(self._tree, (dict, list)) else []
        while stack:
            node = stack.pop()
            for key, child in node.items() if isinstance(node, dict) else enumerate(node):
                if _is_reference(child):
                    self._sites[id(child)] = (node, key, child)
                elif isinstance(child, (dict, list)):
                    self._parents[id(child)] = node
                    stack.append(child)

    def _target(self, reference: int, hops: int) -> Any:
        if reference in self._resolved:
            return self._resolved[reference]
        if hops > DEPTH_MAX:
            raise WireError(f"JSON references lead through more than {DEPTH_MAX} others")
        self._resolved[reference] = None
        container, _, site = self._sites[reference]
        target = self._locate(container, site["$ref"], hops)
        if self._cut_cycles and self._surrounds(target, container):
            target = None
        self._resolved[reference] = target
        return target

    def _locate(self, container: Any, path: str, hops: int) -> Any:
        if path == "@":
            return container
        if path == "..":
            return self._parents.get(id(container))
        if not path.startswith("$"):
            return None
        node, at = self._tree, 1
        while at < len(path) and node is not None:
            step = _PATH_STEP.match(path, at)
            if step is None:
                return None
            at = step.end()
            node = _child(node, step)
            if id(node) in self._sites:
                node = self._target(id(node), hops + 1)
        return node

    def _surrounds(self, target: Any, container: Any) -> bool:
        node = container
        while node is not None:
            if node is target:
                return True
            node = self._parents.get(id(node))
        return False


def _is_reference(node: Any) -> bool:
    return isinstance(node, dict) and len(node) == 1 and isinstance(node.get("$ref"), str)


def _child(node: Any, step: re.Match[str]) -> Any:
    index = step["index"]
    if isinstance(node, list):
        return node[int(index)] if index is not None and int(index) < len(node) else None
    if not isinstance(node, dict):
        return None
    if index is not None:
        return node.get(int(index), node.get(index))
    name = step["quoted"]
    if name is None:
        name = re.sub(r"\\(.)", r"\1", step["name"], flags=re.DOTALL)
    if name in node:
        return node[name]
    return node.get(int(name)) if name.isascii() and name.isdigit() and len(name) < 20 else None


def _measure(node: Any, depth: int, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Nodes and height of a value once every reference in it is written out."""
    if not isinstance(node, (dict, list)):
        return 1, 0
    if id(node) in known:
        nodes, height = known[id(node)]
    else:
        if depth > DEPTH_MAX:
            raise _too_deep()
        nodes, height = 1, 0
        for child in node.values() if isinstance(node, dict) else node:
            child_nodes, child_height = _measure(child, depth + 1, known)
            nodes += child_nodes
            height = max(height, child_height + 1)
        known[id(node)] = nodes, height
    if depth + height > DEPTH_MAX + 1:
        raise _too_deep()
    if nodes > NODES_MAX:
        raise WireError(f"JSON references multiply its content to more than {NODES_MAX} nodes")
    return nodes, height
