"""How commands show what they found: `-o table`, `wide`, `json` or `yaml`.

Data goes to stdout and nothing else does; what is for people only (plans, progress, advice) goes to stderr through
`note`. A command hands over plain values: rows are dicts whose keys are the names in JSON and YAML; a table shows the
columns that the command names, `wide` all of them.

On a terminal a table fits its width (the longest texts are cut) and states have colours; in a pipe, in a file and with
NO_COLOR it is plain and whole.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

# By hand and not by a library such as rich: importing that takes longer than all that most commands do.
COLOURS: Final = {
    "ok": "32", "up": "32", "SEND_OK": "32", "warn": "33", "fail": "31;1", "down": "31;1",
}  # fmt: skip
HEAD: Final = "1"
COLUMN_MIN: Final = 8
FORMATS: Final = ("table", "wide", "json", "yaml")
CELL_MAX: Final = 60


def note(text: str) -> None:
    """For the person in front of the terminal."""
    print(text, file=sys.stderr, flush=True)


def rows(form: str, found: Sequence[Mapping[str, Any]], columns: Sequence[str], wide: Sequence[str] = ()) -> None:
    """A list of things. JSON is one array, also when it is empty."""
    if form == "json":
        print(json.dumps(list(found), ensure_ascii=False, indent=2))
    elif form == "yaml":
        print(yaml(list(found)))
    elif found:
        print(table(found, [*columns, *wide] if form == "wide" else columns, width=terminal_width(), colour=coloured()))
    else:
        note("nothing found")


def record(form: str, found: Mapping[str, Any], columns: Sequence[str] = ()) -> None:
    """One thing: JSON is one object, a table has a line for each of its fields."""
    if form == "json":
        print(json.dumps(found, ensure_ascii=False, indent=2))
    elif form == "yaml":
        print(yaml(found))
    else:
        shown = {name: found[name] for name in columns} if columns and form == "table" else found
        width = max(map(len, shown), default=0)
        for name, value in shown.items():
            print(f"{name:<{width}}  {cell(value)}")


def line(found: Mapping[str, Any]) -> None:
    """One thing of a stream: JSON on one line, out at once."""
    print(json.dumps(found, ensure_ascii=False, separators=(",", ":")), flush=True)


def terminal_width() -> int | None:
    """None where nobody looks: a table is whole there."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def coloured() -> bool:
    """https://no-color.org: set to anything, NO_COLOR means none."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def table(
    found: Sequence[Mapping[str, Any]], columns: Sequence[str], *, width: int | None = None, colour: bool = False
) -> str:
    """The last column may be as long as it likes, the others are cut; with a `width` no line is longer than that."""
    cells = [[cell(row.get(name)) for name in columns] for row in found]
    cells = [[*(text[:CELL_MAX] for text in row[:-1]), row[-1]] for row in cells]
    widths = [max(len(name), *(len(row[place]) for row in cells)) for place, name in enumerate(columns)]
    if width is not None:
        widths = narrowed(widths, width)
    right = [all(_is_number(row.get(name)) for row in found) for name in columns]
    lines = ["  ".join(map(_fit, [name.upper() for name in columns], widths, right)).rstrip()]
    if colour:
        lines[0] = _painted(lines[0], HEAD)
    for row in cells:
        fitted = list(map(_fit, row, widths, right))
        if colour:
            fitted = [_painted(text, COLOURS[word]) if word in COLOURS else text
                      for text, word in zip(fitted, row, strict=True)]  # fmt: skip
        lines.append("  ".join(fitted).rstrip())
    return "\n".join(lines)


def narrowed(widths: list[int], width: int) -> list[int]:
    """The widest columns give way until the line fits, none below COLUMN_MIN."""
    widths = list(widths)
    while sum(widths) + 2 * (len(widths) - 1) > width:
        widest = max(range(len(widths)), key=lambda place: widths[place])
        if widths[widest] <= COLUMN_MIN:
            break
        widths[widest] -= 1
    return widths


def _painted(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"


def cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={inner}" for key, inner in value.items()) or "-"
    if isinstance(value, list | tuple | set):
        return ", ".join(map(str, value)) or "-"
    return str(value).replace("\n", " ")


def _fit(text: str, width: int, right: bool) -> str:
    if len(text) > width:
        text = text[: width - 1] + "…"
    return text.rjust(width) if right else text.ljust(width)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def yaml(value: Any, indent: int = 0) -> str:
    """Block style for what has contents; leaves are written as JSON, which YAML reads as it is."""
    pad = "  " * indent
    if isinstance(value, Mapping) and value:
        return "\n".join(f"{pad}{_key(key)}:{_yaml_inner(inner, indent)}" for key, inner in value.items())
    if isinstance(value, list | tuple) and value:
        return "\n".join(_yaml_item(inner, indent) for inner in value)
    return pad + json.dumps(value, ensure_ascii=False)


def _yaml_inner(value: Any, indent: int) -> str:
    if isinstance(value, Mapping | list | tuple) and value:
        return "\n" + yaml(value, indent + 1)
    return " " + json.dumps(value, ensure_ascii=False)


def _yaml_item(value: Any, indent: int) -> str:
    """The dash takes the place of the first two spaces of what it begins."""
    text = yaml(value, indent + 1)
    place = 2 * indent
    return text[:place] + "- " + text[place + 2 :]


def _key(key: object) -> str:
    text = str(key)
    return text if text.replace("_", "").replace("-", "").isalnum() and not text.isdigit() else json.dumps(text)


def joined(parts: Iterable[object]) -> str:
    return ", ".join(map(str, parts))
