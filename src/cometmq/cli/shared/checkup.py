"""The checks of `cometmq doctor`: each looks at one thing of the machine and says what it found."""

import ctypes
import math
import os
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cometmq.build_info import build_info
from cometmq.cli.shared.times import bytes_text
from cometmq.machine import storage_of

OPEN_FILES_MIN: Final = 65_536
MEMORY_BYTES_MIN: Final = 512 << 20
FLUSHES: Final = 20
FLUSH_MS_SLOW: Final = 20.0
CLOCK_STEP_S_MAX: Final = 2.0
_STATUS_AT: Final = 40  # of `status` in the kernel's struct timex
_UNSYNCHRONISED: Final = 0x40


@dataclass(frozen=True, slots=True)
class Finding:
    """`state` is ok, warn or fail."""

    state: str
    check: str
    found: str
    fix: str = ""


def build() -> list[Finding]:
    text = str(build_info())
    if "(compiled)" in text:
        return [Finding("ok", "build", text)]
    return [Finding("warn", "build", text, "install a C compiler and Python headers, then install again: it is faster")]


def limits() -> list[Finding]:
    if sys.platform == "win32":
        return []
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= OPEN_FILES_MIN:
        return [Finding("ok", "open files", f"{soft} allowed")]
    return [Finding("warn", "open files", f"{soft} allowed", f"ulimit -n {OPEN_FILES_MIN}, or LimitNOFILE in the unit")]


def memory() -> list[Finding]:
    figures = _meminfo()
    if not figures:
        return []
    free = figures.get("MemAvailable", 0)
    state = "ok" if free >= MEMORY_BYTES_MIN else "warn"
    fix = "" if state == "ok" else f"a broker and its page cache want {bytes_text(MEMORY_BYTES_MIN)} at least"
    return [Finding(state, "memory", f"{bytes_text(free)} of {bytes_text(figures['MemTotal'])} available", fix)]


def _meminfo() -> dict[str, int]:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}


def directory(path: str, settings: dict[str, str]) -> list[Finding]:
    """Can it be written, is there room, what lies below it."""
    place = _existing(Path(path))
    findings = []
    if not os.access(place, os.W_OK):
        fix = f"chown it, or choose another (--data, storePathRootDir); checked {place}"
        findings.append(Finding("fail", "data directory", f"{path} cannot be written", fix))
    else:
        findings.append(Finding("ok", "data directory", f"{path} can be written"))
    findings.append(_room(place, settings))
    storage = storage_of(str(place))
    complaints = storage.complaints()
    kind = f"{storage.file_system or 'unknown'} on {storage.device or 'unknown'}"
    found = f"{kind}, I/O scheduler {storage.scheduler or 'unknown'}"
    findings.append(Finding("warn" if complaints else "ok", "file system", found, "; ".join(complaints)))
    return findings


def _room(place: Path, settings: dict[str, str]) -> Finding:
    usage = shutil.disk_usage(place)
    usable = usage.used + usage.free  # as df and brokers count it: what is kept for root is neither
    used_percent = math.ceil(100 * usage.used / usable) if usable else 100
    refuse_percent = int(settings.get("diskSpaceWarningLevelRatio", "90"))
    delete_percent = int(settings.get("diskMaxUsedSpaceRatio", "75"))
    found = f"{bytes_text(usage.free)} free, {used_percent} % used"
    if used_percent >= refuse_percent:
        return Finding("fail", "disk space", found, f"free some: from {refuse_percent} % on messages are refused")
    if used_percent >= delete_percent:
        return Finding("warn", "disk space", found, f"from {delete_percent} % on old messages are deleted early")
    return Finding("ok", "disk space", found)


def flush_speed(path: str) -> list[Finding]:
    """How long one small flush takes: what every message waits for under SYNC_FLUSH."""
    place = _existing(Path(path))
    if not os.access(place, os.W_OK):
        return []
    took_ms = []
    with tempfile.NamedTemporaryFile(dir=place, prefix=".cometmq-doctor-") as file:
        for _ in range(FLUSHES):
            file.write(b"\0" * 4096)
            file.flush()
            began_s = time.perf_counter()
            os.fsync(file.fileno())
            took_ms.append((time.perf_counter() - began_s) * 1000)
        skew_s = abs(os.fstat(file.fileno()).st_mtime - time.time())
    median_ms = sorted(took_ms)[FLUSHES // 2]
    found = f"{median_ms:.2f} ms a flush (median of {FLUSHES})"
    fix = "" if median_ms < FLUSH_MS_SLOW else "slow for SYNC_FLUSH: use a local SSD, or ASYNC_FLUSH with a replica"
    findings = [Finding("warn" if fix else "ok", "flush", found, fix)]
    if skew_s > CLOCK_STEP_S_MAX:
        text = f"file times are {skew_s:.0f} s off"
        findings.append(Finding("warn", "clock of the file system", text, "synchronise the file server's clock"))
    return findings


def ports(numbers: tuple[int, ...]) -> list[Finding]:
    findings = []
    for number in numbers:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", number))
                findings.append(Finding("ok", f"port {number}", "free"))
            except OSError as error:
                fix = f"a server runs there already, or choose another port; ss -ltnp 'sport = :{number}' shows who"
                findings.append(Finding("warn", f"port {number}", f"in use: {error.strerror or error}", fix))
    return findings


def broker_settings(texts: dict[str, str]) -> list[Finding]:
    if not texts:
        return [Finding("ok", "settings", "no file given: defaults")]
    from cometmq import settings_table
    from cometmq.broker.admin import settings as live
    from cometmq.errors import CometError

    rows = settings_table.BROKER
    findings = [
        Finding("fail" if row.state is settings_table.State.REFUSED else "warn", f"setting {row.key}",
                f"{row.key}={texts[row.key].strip()[:80]} has no effect: {row.why}", row.cure)
        for row in settings_table.complaints(rows, texts)
    ]  # fmt: skip
    try:
        live.load(dict(texts))
    except CometError as error:
        if not any(one.state == "fail" for one in findings):
            findings.append(Finding("fail", "settings", str(error), "mend it; cometmq broker -c FILE -p prints all"))
        return findings
    unknown = sorted(texts.keys() - rows.keys() - _own_paths(texts))
    if unknown:
        text = f"unknown keys: {', '.join(unknown)}"
        findings.append(Finding("warn", "settings", text, "misspelt? they have no effect"))
    quiet = sorted(
        key for key in texts.keys() & rows.keys()
        if rows[key].state is settings_table.State.WITHOUT_MEANING and rows[key].asks(texts[key])
    )  # fmt: skip
    if quiet:
        text = f"without meaning here: {', '.join(quiet)}"
        findings.append(Finding("ok", "settings", text, "docs/settings.md says why"))
    return findings or [Finding("ok", "settings", f"{len(texts)} keys, all understood")]


def access(texts: dict[str, str]) -> list[Finding]:
    """Who may talk to a broker with these settings, and may anybody listen."""
    if not texts:
        return []
    from cometmq.auth.sources import parse_address
    from cometmq.broker.admin import settings as live

    config = live.load(dict(texts)).config
    bound = parse_address(config.bind_address)
    if not config.authentication_enabled:
        if bound is not None and bound.is_loopback:
            return [Finding("ok", "access", f"open to all on {config.bind_address}, which is this machine only")]
        fix = "authenticationEnabled=true and authorizationEnabled=true (docs/security.md), or bindAddress=127.0.0.1"
        return [Finding("warn", "access", f"whoever reaches {config.bind_address} may do anything", fix)]
    if not config.authorization_enabled:
        return [Finding("warn", "access", "every user may do everything", "authorizationEnabled=true")]
    if config.tls_mode != "enforcing":
        fix = "tls.server.mode=enforcing, with a certificate (cometmq tls init)"
        return [Finding("warn", "access", "requests are signed, but can be read and sent again on the way", fix)]
    return [Finding("ok", "access", "requests are signed, permitted and encrypted")]


def _own_paths(texts: dict[str, str]) -> set[str]:
    """Keys that are not shown while they have no value, so that only a given value shows them."""
    from cometmq.broker.config import BrokerConfig
    from cometmq.settings import settings_of
    from cometmq.store.options import OLD_KEYS, StoreOptions

    return texts.keys() & (settings_of(BrokerConfig).keys() | settings_of(StoreOptions).keys() | OLD_KEYS.keys())


def clock() -> list[Finding]:
    if not sys.platform.startswith("linux"):
        return []
    state = ctypes.create_string_buffer(512)
    if ctypes.CDLL(None, use_errno=True).adjtimex(state) < 0:
        return [Finding("ok", "clock", "the system does not tell whether it is synchronised")]
    status = int.from_bytes(state.raw[_STATUS_AT : _STATUS_AT + 4], sys.byteorder)
    if status & _UNSYNCHRONISED:
        return [Finding("warn", "clock", "not synchronised", "run chrony or systemd-timesyncd: delays and lag use it")]
    return [Finding("ok", "clock", "synchronised")]


def _existing(path: Path) -> Path:
    """The directory, or the nearest one above that exists."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    return place
