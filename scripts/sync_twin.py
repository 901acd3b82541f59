"""Writes the classes of cometmq.sync from those of the async client: the same methods, without await.

    python scripts/sync_twin.py            write what is out of date
    python scripts/sync_twin.py --check    say what is out of date, exit 1 if anything is

    async def f(...) -> X                       def f(...) -> X, run on the client's loop thread
    async def f(...) -> AsyncIterator[X]        def f(...) -> Iterator[X]
    @asynccontextmanager f                      @contextmanager f
    def f(...) -> asyncio.Future[X]             def f(...) -> concurrent.futures.Future[X]
    def f(...) -> X, properties                 the same, called on the loop thread

Methods that the client's own parts call are left out, as are those that TWINS names: their twins are written by hand.
"""

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
TARGET = SOURCE / "cometmq" / "sync"

# Called by brokers or other parts of the client, not by programs.
INNER = {
    "on_check", "on_reset", "on_members_changed", "subscriptions", "positions", "running_info", "consume_type",
    "message_model", "start_from", "settle", "submit", "on_assigned", "instance",
}  # fmt: skip


@dataclass(frozen=True)
class Twin:
    """`target` is the module below cometmq.sync, `source` the async one; `base` a twin that it extends."""

    target: str
    source: str
    name: str
    generic: bool = False
    base: str | None = None
    inner: str | None = None
    left_out: frozenset[str] = frozenset()
    suffix: str = ""


ADMIN = "cometmq.client.admin:Admin"
TWINS = (
    Twin("producer", "cometmq.client.produce.producer", "Producer", generic=True),
    Twin("transactions", "cometmq.client.produce.transactions", "TransactionProducer", generic=True,
         base="producer:Producer"),
    Twin("pull", "cometmq.client.consume.pull", "PullConsumer", generic=True, left_out=frozenset({"consume_directly"})),
    Twin("consumer_base", "cometmq.client.consume.iterator", "Consumer", generic=True,
         left_out=frozenset({"iter", "receive"}), suffix="Base"),
    Twin("push_base", "cometmq.client.consume.push", "PushConsumer", left_out=frozenset({"on", "run"}), suffix="Base"),
    Twin("topic_admin", "cometmq.client.admin.topics", "TopicAdmin", inner=ADMIN),
    Twin("group_admin", "cometmq.client.admin.groups", "GroupAdmin", inner=ADMIN),
    Twin("offset_admin", "cometmq.client.admin.offsets", "OffsetAdmin", inner=ADMIN),
    Twin("narrowing_admin", "cometmq.client.admin.narrowing", "NarrowingAdmin", inner=ADMIN),
    Twin("message_admin", "cometmq.client.admin.messages", "MessageAdmin", inner=ADMIN),
    Twin("dead_letter_admin", "cometmq.client.admin.dead_letters", "DeadLetterAdmin", inner=ADMIN),
    Twin("browsing_admin", "cometmq.client.admin.browsing", "BrowsingAdmin", inner=ADMIN),
    Twin("waiting_admin", "cometmq.client.admin.waiting", "WaitingAdmin", inner=ADMIN),
    Twin("cluster_admin", "cometmq.client.admin.cluster", "ClusterAdmin", inner=ADMIN),
    Twin("user_admin", "cometmq.client.admin.users", "UserAdmin", inner=ADMIN),
    Twin("access_admin", "cometmq.client.admin.access", "AccessAdmin", inner=ADMIN),
)  # fmt: skip


class Module:
    """The source of one async class, and where the names in it come from."""

    def __init__(self, twin: Twin) -> None:
        path = SOURCE / (twin.source.replace(".", "/") + ".py")
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.origins: dict[str, str] = {}
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom):
                self.origins.update({alias.asname or alias.name: node.module or "" for alias in node.names})
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.ClassDef):
                for name in _defined(node):
                    self.origins[name] = twin.source
        (self.body,) = [it for it in self.tree.body if isinstance(it, ast.ClassDef) and it.name == twin.name]


def _defined(node: ast.Assign | ast.AnnAssign | ast.ClassDef) -> list[str]:
    if isinstance(node, ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


class Writer:
    def __init__(self, twin: Twin) -> None:
        self.twin = twin
        self.module = Module(twin)
        self.used: set[str] = set()
        self.own_imports: set[str] = {"from cometmq.client.loop_thread import LoopThread"}

    def write(self) -> str:
        methods = [self._method(node) for node in self.module.body.body if self._is_wanted(node)]
        constants = [self._constant(node) for node in self.module.body.body if _is_public_constant(node)]
        text = "\n".join([*constants, *([""] if constants else []), self._init(), *methods])
        named = self._class_line()
        return "\n".join([self._head(), *self._imports(), "", "", named, self._doc(), "", text]) + "\n"

    def _is_wanted(self, node: ast.stmt) -> bool:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        return not (node.name.startswith("_") or node.name in INNER or node.name in self.twin.left_out)

    def _head(self) -> str:
        return f'"""The sync twin of `{self.twin.source}.{self.twin.name}`. Written by scripts/sync_twin.py."""\n'

    def _class_line(self) -> str:
        bases = []
        if self.twin.base is not None:
            module, name = self.twin.base.split(":")
            self.own_imports.add(f"from cometmq.sync.{module} import {name}")
            bases.append(f"{name}[T]")
        elif self.twin.inner is None:
            self.own_imports.add("from cometmq.sync.life import Life")
            bases.append("Life")
        if self.twin.generic and self.twin.base is None:
            bases.append("Generic[T]")
        listed = f"({', '.join(bases)})" if bases else ""
        return f"class {self.twin.name}{self.twin.suffix}{listed}:"

    def _doc(self) -> str:
        doc = ast.get_docstring(self.module.body) or f"Part of the administration: `{self.twin.name}`."
        return _docstring(doc, 4)

    def _init(self) -> str:
        source, name = (self.twin.inner or f"{self.twin.source}:{self.twin.name}").split(":")
        self.own_imports.add(f"from {source} import {name} as Async{name}")
        kind = f"Async{name}[T]" if self.twin.generic else f"Async{name}"
        lines = [
            f"    def __init__(self, inner: {kind}, thread: LoopThread) -> None:",
            *(["        super().__init__(inner, thread)"] if self.twin.base is not None else []),
            f"        self._inner{': ' + kind if self.twin.base is None else ''} = inner",
            "        self._thread = thread",
            "",
        ]
        if self.twin.base is not None:
            lines[2:4] = [f"        self._inner: {kind} = inner"]
        return "\n".join(lines)

    def _constant(self, node: ast.stmt) -> str:
        assert isinstance(node, ast.AnnAssign)
        self._note(node.annotation)
        self._note_value(node.value)
        return f"    {ast.unparse(node)}"

    def _method(self, node: ast.stmt) -> str:
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        decorators = {ast.unparse(it) for it in node.decorator_list}
        call = f"self._inner.{node.name}({_forwarded(node.args)})"
        returns = _annotation(node.returns)
        lines: list[str] = []
        if "property" in decorators:
            lines.append("    @property")
            body = [f"return self._inner.{node.name}"]
        elif "asynccontextmanager" in decorators:
            returns = returns.replace("AsyncIterator[", "Iterator[", 1)
            self.own_imports |= {"from contextlib import contextmanager", "from collections.abc import Iterator"}
            lines.append("    @contextmanager")
            body = [f"with self._thread.enter({call}) as entered:", "    yield entered"]
        elif returns.startswith("AsyncIterator["):
            returns = returns.replace("AsyncIterator[", "Iterator[", 1)
            self.own_imports.add("from collections.abc import Iterator")
            body = [f"return self._thread.iterate({call})"]
        elif returns.startswith("asyncio.Future["):
            returns = returns.removeprefix("asyncio.")
            self.own_imports.add("from concurrent.futures import Future")
            body = [f"return self._thread.promise(lambda: {call})"]
        elif isinstance(node, ast.AsyncFunctionDef):
            body = [f"return self._thread.run({call})"] if returns != "None" else [f"self._thread.run({call})"]
        else:
            action = call.removesuffix("()") if call.endswith("()") else f"lambda: {call}"
            body = [f"{'return ' if returns != 'None' else ''}self._thread.call({action})"]
        self._note(ast.parse(returns, mode="eval").body)
        for argument in _arguments(node.args):
            self._note(argument.annotation)
        for value in [*node.args.defaults, *node.args.kw_defaults]:
            self._note_value(value)
        lines.append(_signature(node, returns))
        doc = ast.get_docstring(node)
        if doc:
            lines.append(_docstring(_without_await(doc), 8))
        lines += [f"        {line}" for line in body]
        return "\n".join([*lines, ""])

    def _note(self, *expressions: ast.expr | None) -> None:
        for expression in expressions:
            if expression is None:
                continue
            tree = ast.parse(_annotation(expression), mode="eval")
            self.used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}

    def _note_value(self, value: ast.expr | None) -> None:
        if value is not None:
            self.used |= {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}

    def _imports(self) -> list[str]:
        lines = set(self.own_imports)
        if self.twin.generic:
            lines |= {"from typing import TypeVar"}
            if self.twin.base is None:
                lines.add("from typing import Generic")
        for name in sorted(self.used - {"T", "Future", "Iterator"}):
            if name in self.module.origins:
                lines.add(f"from {self.module.origins[name]} import {name}")
        return [*sorted(lines), *(['\nT = TypeVar("T")'] if self.twin.generic else [])]


def _is_public_constant(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id.isupper()
        and node.value is not None
    )


def _annotation(node: ast.expr | None) -> str:
    """An annotation as code; what is written as text is unpacked."""
    if node is None:
        return "None"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ast.unparse(node)


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*given, *[it for it in (arguments.vararg, arguments.kwarg) if it is not None]]


def _forwarded(arguments: ast.arguments) -> str:
    given = [it.arg for it in [*arguments.posonlyargs, *arguments.args][1:]]
    if arguments.vararg is not None:
        given.append(f"*{arguments.vararg.arg}")
    given += [f"{it.arg}={it.arg}" for it in arguments.kwonlyargs]
    if arguments.kwarg is not None:
        given.append(f"**{arguments.kwarg.arg}")
    return ", ".join(given)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, returns: str) -> str:
    for argument in _arguments(node.args):
        if isinstance(argument.annotation, ast.Constant):
            argument.annotation = ast.parse(_annotation(argument.annotation), mode="eval").body
    return f"    def {node.name}({ast.unparse(node.args)}) -> {returns}:"


def _without_await(doc: str) -> str:
    """Code in a docstring, in the words of the twin."""
    return re.sub(r"`[^`]+`", lambda code: code.group().replace("await ", "").replace("async ", ""), doc)


def _docstring(doc: str, indent: int) -> str:
    pad = " " * indent
    lines = doc.splitlines()
    text = "\n".join([f'{pad}"""{lines[0]}', *[f"{pad}{line}".rstrip() for line in lines[1:]]])
    return f"{text}\n{pad}\"\"\"" if len(lines) > 1 else f'{text}"""'


def formatted(text: str) -> str:
    """In the house style: the line length and the order of imports are ruff's to decide."""
    tool = Path(sys.executable).with_name("ruff")
    for arguments in (["check", "--select", "I,F401,UP", "--fix", "--quiet"], ["format", "--quiet"]):
        command = [str(tool), *arguments, "--stdin-filename", str(TARGET / "twin.py"), "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode != 0:
            raise SystemExit(f"ruff {arguments[0]} refused:\n{done.stdout}{done.stderr}\n{text}")
        text = done.stdout
    return text


def outdated() -> dict[Path, str]:
    wanted = {TARGET / f"{twin.target}.py": formatted(Writer(twin).write()) for twin in TWINS}
    return {
        path: text for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def main(arguments: list[str]) -> int:
    changed = outdated()
    for path, text in changed.items():
        if "--check" in arguments:
            print(f"out of date: {path.relative_to(ROOT)}: run python scripts/sync_twin.py")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if changed and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
