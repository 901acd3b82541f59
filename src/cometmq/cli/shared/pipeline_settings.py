"""What a pipeline takes, read from the text of its function: no Spark is needed to ask.

    cometmq pipeline run archive --help

One spelling is shown, that of the function (`rows_per_batch`); the spelling of the formats' options (`rowsPerBatch`) is
taken as well.
"""

import ast
import difflib
import textwrap
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from cometmq.errors import ConfigError

_FOLDER: Final = Path(__file__).parents[2] / "spark" / "pipelines"


@dataclass(frozen=True, slots=True)
class Setting:
    """`default` is None for one that must be given."""

    name: str
    kind: str
    default: str | None


@dataclass(frozen=True, slots=True)
class Described:
    """`takes_more`: other settings go to the source as its options."""

    purpose: str
    settings: tuple[Setting, ...]
    takes_more: bool


@lru_cache
def describe(name: str) -> Described:
    tree = ast.parse((_FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    constants = _constants(tree)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cometmq."):
            wanted = {alias.name for alias in node.names if alias.name.isupper()}
            if wanted:
                path = _FOLDER.parents[2] / (node.module or "").replace(".", "/")
                path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
                found = _constants(ast.parse(path.read_text(encoding="utf-8")))
                constants |= {one: found[one] for one in wanted & found.keys()}
    settings = []
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        text = None if default is None else ast.unparse(default)
        kind = ast.unparse(argument.annotation) if argument.annotation is not None else "str"
        settings.append(Setting(argument.arg, _shown_kind(kind), constants.get(text, text) if text else text))
    purpose = " ".join((ast.get_docstring(function) or "").split())
    return Described(purpose, tuple(settings), function.args.kwarg is not None)


def _constants(tree: ast.Module) -> dict[str, str]:
    found = {
        node.target.id: node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name)
    }
    return {name: ast.unparse(_first(value, found)) for name, value in found.items()}


def _first(value: ast.expr, constants: dict[str, ast.expr]) -> ast.expr:
    """The first of a constant's tuple, where `value` is that: CODECS[0]."""
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
        whole = constants.get(value.value.id)
        if isinstance(whole, ast.Tuple) and ast.unparse(value.slice) == "0":
            return whole.elts[0]
    return value


def canonical(name: str, given: str) -> str:
    """The name of a setting, however it is spelt; ConfigError for one that looks like a misspelt one. Others may be
    options of the source."""
    described = describe(name)
    known = {setting.name.replace("_", ""): setting.name for setting in described.settings}
    plain = given.replace("_", "").lower()
    if plain in known:
        return known[plain]
    near = difflib.get_close_matches(plain, known, 1, 0.85)
    if near:
        raise ConfigError(f"pipeline {name} has no {given}: do you mean {known[near[0]]}?")
    return given


def help_text(name: str) -> str:
    described = describe(name)
    rows = [(f"{one.name}=", one.kind, _default(one)) for one in described.settings]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"usage: cometmq pipeline run {name} KEY=VALUE ...", "", *textwrap.wrap(described.purpose, 100), ""]
    lines.append("settings:")
    lines += [f"  {key:<{widths[0]}}  {kind:<{widths[1]}}  {default}" for key, kind, default in rows]
    if described.takes_more:
        lines += ["", "Other settings are options of the source (docs/spark.md), such as readMode=remote."]
    return "\n".join(lines)


def _default(setting: Setting) -> str:
    if setting.name == "namesrv":
        return "default: --namesrv, the environment or the context, as are keys"
    return "must be given" if setting.default is None else f"default: {_shown(setting.default)}"


def _shown(default: str) -> str:
    if default == "None":
        return "none"
    value = ast.literal_eval(default) if default[:1] in "'\"" or default[:1].isdigit() else default
    return {"True": "true", "False": "false"}.get(str(value), str(value))


def _shown_kind(kind: str) -> str:
    plain = kind.replace(" | None", "")
    return {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}.get(plain, plain)
