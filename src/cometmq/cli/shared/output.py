"""How commands show what they found: `-o table`, `wide`, `json` or `yaml`.

Data goes to stdout and nothing else does; what is for people only (plans, progress, advice) goes to stderr through
`note`. A command hands over plain values: rows are dicts whose keys are the names in JSON and YAML; a table shows the
columns that the command names, `wide` all of them.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

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
        print(table(found, [*columns, *wide] if form == "wide" else columns))
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


def table(found: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """The last column may be as long as it likes, the others are cut."""
    cells = [[cell(row.get(name)) for name in columns] for row in found]
    cells = [[*(text[:CELL_MAX] for text in row[:-1]), row[-1]] for row in cells]
    widths = [max(len(name), *(len(row[place]) for row in cells)) for place, name in enumerate(columns)]
    right = [all(_is_number(row.get(name)) for row in found) for name in columns]
    lines = [[name.upper() for name in columns], *cells]
    return "\n".join("  ".join(map(_fit, row, widths, right)).rstrip() for row in lines)


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
