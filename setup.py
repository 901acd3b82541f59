"""Build script: which modules mypyc compiles, and when.

Everything else about the package is in pyproject.toml. COMETMQ_COMPILE decides about compilation:

    1       compile; a missing compiler, a missing module or a type error ends the build
    0       never compile
    unset   compile if possible; otherwise print one line and install plain Python

Why a separate overlay directory in development: docs/decisions/0002-compiled-overlay.md
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

# Compiled together, in one group. A path listed here must exist: a renamed module ends the build
# instead of quietly running interpreted. wire/fastjson/header.py stays out: mypyc erases annotations like `str | None`,
# msgspec then refuses every value for them, and each header would take the lenient road (4 us instead of 1).
HOT_MODULES: tuple[str, ...] = (
    "src/cometmq/auth/access.py",
    "src/cometmq/auth/signature.py",
    "src/cometmq/broker/delayed/levels.py",
    "src/cometmq/broker/tables/delay_progress.py",
    "src/cometmq/broker/transactions/ops.py",
    "src/cometmq/broker/transactions/half_queue.py",
    "src/cometmq/broker/transactions/half.py",
    "src/cometmq/broker/consume/pull.py",
    "src/cometmq/broker/produce/send.py",
    "src/cometmq/broker/transactions/requests.py",
    "src/cometmq/broker/consume/long_poll.py",
    "src/cometmq/broker/admission.py",
    "src/cometmq/broker/matching.py",
    "src/cometmq/broker/stats/stats.py",
    "src/cometmq/broker/transactions/transactions.py",
    "src/cometmq/broker/stats/counters.py",
    "src/cometmq/client/produce/batching.py",
    "src/cometmq/client/produce/outgoing.py",
    "src/cometmq/client/produce/sending.py",
    "src/cometmq/client/produce/targets.py",
    "src/cometmq/client/produce/window.py",
    "src/cometmq/broker/grpc/local.py",
    "src/cometmq/front/acks.py",
    "src/cometmq/front/call.py",
    "src/cometmq/front/checks.py",
    "src/cometmq/front/deliver.py",
    "src/cometmq/front/desk.py",
    "src/cometmq/front/handles.py",
    "src/cometmq/front/produce.py",
    "src/cometmq/front/receive.py",
    "src/cometmq/front/refusals.py",
    "src/cometmq/front/requests.py",
    "src/cometmq/net/calls.py",
    "src/cometmq/net/connection.py",
    "src/cometmq/net/dispatch.py",
    "src/cometmq/net/family.py",
    "src/cometmq/net/peer.py",
    "src/cometmq/net/endpoint.py",
    "src/cometmq/net/http2.py",
    "src/cometmq/net/inside.py",
    "src/cometmq/net/intake.py",
    "src/cometmq/net/meter.py",
    "src/cometmq/net/output.py",
    "src/cometmq/net/serving.py",
    "src/cometmq/net/waiting.py",
    "src/cometmq/store/queues/batch_queue.py",
    "src/cometmq/store/log/commit_log.py",
    "src/cometmq/store/queues/consume_queue.py",
    "src/cometmq/store/queues/extension.py",
    "src/cometmq/store/queues/consume_queues.py",
    "src/cometmq/store/queues/next_offsets.py",
    "src/cometmq/store/log/resync.py",
    "src/cometmq/store/queues/dispatch.py",
    "src/cometmq/store/log/write_flags.py",
    "src/cometmq/store/log/flush.py",
    "src/cometmq/store/queues/index.py",
    "src/cometmq/store/log/append.py",
    "src/cometmq/store/queues/queue_files.py",
    "src/cometmq/store/queues/reading.py",
    "src/cometmq/store/record.py",
    "src/cometmq/store/log/recovery.py",
    "src/cometmq/store/replication/record_cutter.py",
    "src/cometmq/store/results.py",
    "src/cometmq/store/log/segments.py",
    "src/cometmq/store/store.py",
    "src/cometmq/wire/record/batch.py",
    "src/cometmq/wire/command.py",
    "src/cometmq/wire/ext_fields.py",
    "src/cometmq/wire/frame.py",
    "src/cometmq/wire/hashing.py",
    "src/cometmq/wire/headers/hot.py",
    "src/cometmq/wire/headers/parse.py",
    "src/cometmq/wire/http2/frames.py",
    "src/cometmq/wire/http2/hpack.py",
    "src/cometmq/wire/http2/huffman.py",
    "src/cometmq/wire/http2/session.py",
    "src/cometmq/wire/integers.py",
    "src/cometmq/wire/record/layout.py",
    "src/cometmq/wire/record/message.py",
    "src/cometmq/wire/record/message_id.py",
    "src/cometmq/wire/record/plain_scan.py",
    "src/cometmq/wire/record/properties.py",
    "src/cometmq/wire/record/crc.py",
    "src/cometmq/wire/record/scan.py",
    "src/cometmq/wire/record/sysflag.py",
)

ROOT = Path(__file__).resolve().parent
CORES = os.cpu_count() or 1


class CannotCompile(Exception):
    """Why this machine or this source cannot be compiled, in one line."""


def wanted() -> bool | None:
    """True: must compile. False: must not. None: compile if possible."""
    setting = os.environ.get("COMETMQ_COMPILE", "")
    if setting not in ("", "0", "1"):
        sys.exit(f"COMETMQ_COMPILE={setting!r} is not known: use 1 (must), 0 (must not) or leave it unset")
    return None if setting == "" else setting == "1"


def check_compiler() -> None:
    """Compile one line against Python.h: the only proof that both compiler and headers are there."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    include = sysconfig.get_paths()["include"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <Python.h>\n")
        command = [*compiler, f"-I{include}", "-c", str(source), "-o", str(Path(folder, "probe.o"))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise CannotCompile(f"no C compiler ({compiler[0]}: {error.strerror})") from error
    if done.returncode != 0:
        raise CannotCompile(f"{compiler[0]} cannot compile against Python.h in {include}")


def hot_extensions() -> list[Extension]:
    missing = [path for path in HOT_MODULES if not (ROOT / path).is_file()]
    if missing:
        sys.exit(f"HOT_MODULES in setup.py lists files that do not exist: {', '.join(missing)}")
    if not HOT_MODULES:
        return []
    if os.name == "nt":
        raise CannotCompile("compiled modules are not built on Windows")
    check_compiler()
    try:
        from mypyc.build import mypycify
    except ImportError as error:
        raise CannotCompile(f"mypyc is not installed ({error})") from error
    try:
        extensions: list[Extension] = mypycify(
            list(HOT_MODULES),
            opt_level=os.environ.get("COMETMQ_OPT_LEVEL", "2"),
            debug_level="0",
            target_dir="build/mypyc",
            group_name="cometmq",
            multi_file=True,  # one C file a module: all cores compile
        )
    except SystemExit as error:
        raise CannotCompile("mypyc refused the source; its messages are above") from error
    return extensions


def extensions_to_build() -> list[Extension]:
    must = wanted()
    if must is False:
        note_reason("COMETMQ_COMPILE=0 said so")
        return []
    try:
        return hot_extensions()
    except CannotCompile as error:
        if must:
            sys.exit(f"COMETMQ_COMPILE=1 but cannot compile: {error}")
        note_reason(str(error))
        return []


# Said by the installed package: pip shows nothing of what a build prints.
REASON_FILE = "build_reason.txt"
_reasons: list[str] = []


def note_reason(text: str) -> None:
    _reasons.append(text)
    print(f"cometmq: installing plain Python modules: {text}", file=sys.stderr)


class BuildWithReason(build_py):  # type: ignore[misc]
    """Writes down why this build has no compiled modules."""

    def run(self) -> None:
        super().run()
        if _reasons and not self.editable_mode:
            target = Path(self.build_lib, "cometmq", REASON_FILE)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_reasons[-1] + "\n", encoding="utf-8")


class BuildOrFallBack(build_ext):  # type: ignore[misc]
    """All extensions or none: half a group would not import. Why on every core: docs/decisions/0075"""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel: int = CORES

    def build_extensions(self) -> None:
        """`parallel` is about extensions; nearly all of the work is the files of one of them."""
        compile_some = self.compiler.compile

        def compile_at_once(sources: list[str], **options: object) -> list[str]:
            with ThreadPoolExecutor(CORES) as pool:
                made = pool.map(lambda source: compile_some([source], **options), sources)
                return [one for objects in made for one in objects]

        self.compiler.compile = compile_at_once
        super().build_extensions()

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            if wanted():
                raise
            for output in self.get_outputs():
                Path(output).unlink(missing_ok=True)
            self.extensions: list[Extension] = []
            note_reason(str(error))
            build = self.get_finalized_command("build_py")
            Path(build.build_lib, "cometmq", REASON_FILE).write_text(_reasons[-1] + "\n", encoding="utf-8")


setup(ext_modules=extensions_to_build(), cmdclass={"build_ext": BuildOrFallBack, "build_py": BuildWithReason})
