"""`cometmq doctor`: is this machine fit for a broker, and if one does not start, why?

    ok      as it should be
    warn    it works, but slower or less safely than it could; the line says what to change
    fail    a broker with these settings would not start or not accept messages

    cometmq doctor --data /var/lib/cometmq -c broker.conf
    cometmq doctor --bundle report.tar.gz        all of it in one file for somebody who helps; no keys, no passwords

Exit codes: 0 nothing failed, 1 something failed; warnings do not count.
"""

import argparse
import io
import json
import tarfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from cometmq.build_info import build_info
from cometmq.cli.shared import checkup, output, serving
from cometmq.cli.shared.arguments import Verb, run_verb
from cometmq.cli.shared.checkup import Finding
from cometmq.cli.shared.failures import EXIT_NO
from cometmq.config import ServerConfig
from cometmq.errors import CometError
from cometmq.settings import settings_of

SECRET_WORDS: Final = ("password", "secret", "token", "accesskey", "credential")
SECRET_KEYS: Final = frozenset(key for key, (_, rule) in settings_of(ServerConfig).items() if rule.secret)
MASKED: Final = "***"
SYSTEM_FILES: Final = ("/proc/meminfo", "/proc/self/mountinfo", "/proc/self/limits", "/proc/version", "/etc/os-release")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is checked."""

    data: str
    settings: dict[str, str]
    ports: tuple[int, ...]


def main(argv: list[str]) -> int:
    return run_verb(DOCTOR, argv)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", help="store directory; default: of -c, else ./data")
    parser.add_argument("-c", "--config", metavar="FILE", help="the broker's settings")
    parser.add_argument("--ports", metavar="P,P", type=_port_list, help="default: 9876 and those of the settings")
    parser.add_argument("--bundle", metavar="FILE", help="write everything into this .tar.gz, without secrets")


def _doctor(options: argparse.Namespace) -> int:
    settings = serving.read_settings(options.config) if options.config else {}
    subject = Subject(
        options.data or settings.get("storePathRootDir") or "data", settings, _ports(options.ports, settings)
    )
    findings = examine(subject)
    output.rows(options.output, [asdict(one) for one in findings], ("state", "check", "found", "fix"))
    if options.bundle:
        _write_bundle(Path(options.bundle), subject, findings)
        output.note(f"wrote {options.bundle}; settings that look like secrets are masked, read it before you share it")
    return EXIT_NO if any(one.state == "fail" for one in findings) else 0


def _port_list(text: str) -> tuple[int, ...]:
    return tuple(serving.port(part.strip()) for part in text.split(","))


def _ports(given: tuple[int, ...] | None, settings: dict[str, str]) -> tuple[int, ...]:
    """The name server's; the broker's for clients, two below it and one above it."""
    listen = settings.get("listenPort", "10911")
    if given is not None:
        return given
    if not listen.isdecimal() or not 2 < int(listen) < 65_535:
        return (9876,)  # the check of the settings says what is wrong with it
    return (9876, int(listen), int(listen) - 2, int(listen) + 1)


def examine(subject: Subject) -> list[Finding]:
    checks: tuple[Callable[[], list[Finding]], ...] = (
        checkup.build,
        checkup.limits,
        checkup.memory,
        lambda: checkup.directory(subject.data, subject.settings),
        lambda: checkup.flush_speed(subject.data),
        lambda: checkup.ports(subject.ports),
        lambda: checkup.broker_settings(subject.settings),
        lambda: checkup.access(subject.settings),
        checkup.clock,
    )
    findings: list[Finding] = []
    for check in checks:
        try:
            findings += check()
        except (OSError, CometError, ValueError) as error:  # one that cannot be made must not hide the others
            findings.append(Finding("warn", "check", str(error), "the check itself could not be made"))
    return findings


def masked(settings: dict[str, str]) -> dict[str, str]:
    return {key: MASKED if _is_secret(key) else text for key, text in settings.items()}


def _is_secret(key: str) -> bool:
    return key in SECRET_KEYS or any(word in key.lower() for word in SECRET_WORDS)


def _write_bundle(path: Path, subject: Subject, findings: list[Finding]) -> None:
    files = {
        "version.txt": str(build_info()),
        "findings.json": json.dumps([asdict(one) for one in findings], indent=2),
        "settings.json": json.dumps(masked(subject.settings), indent=2),
        "files.txt": "\n".join(_listing(Path(subject.data))),
    }
    for name in SYSTEM_FILES:
        source = Path(name)
        if source.exists():
            files["system/" + source.name] = source.read_text(encoding="utf-8", errors="replace")
    with tarfile.open(path, "w:gz") as bundle:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"cometmq-doctor/{name}")
            content = text.encode()
            entry.size, entry.mtime = len(content), int(time.time())
            bundle.addfile(entry, io.BytesIO(content))


def _listing(root: Path) -> list[str]:
    """Names and sizes of files, never contents."""
    return sorted(f"{file.stat().st_size:>14} {file.relative_to(root)}" for file in root.rglob("*") if file.is_file())


DOCTOR: Final = Verb("doctor", "Check this machine: limits, memory, disk, ports, settings, clock.", _doctor, _arguments,
                     cluster=False, example="cometmq doctor --data /var/lib/cometmq -c broker.conf")  # fmt: skip
