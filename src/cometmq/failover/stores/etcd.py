"""etcd by its JSON gateway (3.4 and later): POST, keys and values in base64, 64-bit numbers as strings.

    /v3/kv/range            get           linearizable
    /v3/kv/txn              swap          if mod_revision is what it was
    /v3/watch               watch         one long answer, a line an event; begun anew with all there is when it ends
    /v3/lease/grant, keepalive            what is announced is kept each third of the session
    /v3/auth/authenticate                 a token, got anew when it is refused

One endpoint at a time is asked. When it does not answer, the next one is, and watches move along with it. A swap that
was sent and not answered is never sent again here: whoever asked has to look first.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from cometmq.clock import Clock
from cometmq.errors import ConfigError
from cometmq.failover.stores import OnEntry, OnLive, StoreUnknown
from cometmq.failover.stores.http import HttpConnection, Peer
from cometmq.rate_limited_log import ThinnedLog

log = logging.getLogger(__name__)

PORT: Final = 2379
CALL_S: Final = 1.5
# In all, with other endpoints.
PATIENCE_S: Final = 4.0
RETRY_S: Final = 0.2
IDLE_MAX: Final = 4
LOOK_AROUND_S: Final = 10.0
PASSWORD_VARIABLE: Final = "COMETMQ_ETCD_PASSWORD"  # noqa: S105 - the name of a variable
OPTIONS: Final = ("user", "password-file", "ca", "cert", "key")
UNAUTHENTICATED: Final = 16
# Deadline exceeded, aborted, unavailable: as while etcd changes its leader. What was asked for may be done.
TRANSIENT: Final = (4, 10, 14)


class _Refused(Exception):
    """etcd's answer is an error: `code` is that of gRPC."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class EtcdStore:
    """ConfigError: the address is none."""

    def __init__(self, address: str, clock: Clock) -> None:
        parts = urlsplit(address)
        options = {key: values[-1] for key, values in parse_qs(parts.query, strict_parsing=bool(parts.query)).items()}
        unknown = sorted(options.keys() - set(OPTIONS))
        if unknown:
            raise ConfigError(f"controllerStore has options {', '.join(unknown)}: known are {', '.join(OPTIONS)}")
        if "@" in parts.netloc:
            raise ConfigError(f"controllerStore: name the user by ?user=, the password by {PASSWORD_VARIABLE}")
        self.address = f"etcd://{parts.netloc}{parts.path}"
        self.prefix = parts.path.rstrip("/")
        context = _context(options)
        self._peers = [_peer(each, context) for each in parts.netloc.split(",") if each]
        if not self._peers:
            raise ConfigError(f"controllerStore={address[:80]} names no endpoint: etcd://host:2379,host:2379")
        self._user = options.get("user", "")
        self._password = _password(options) if self._user else ""
        self._token = ""
        self._clock = clock
        self._at = 0
        self._idle: list[HttpConnection] = []
        self._watches: dict[asyncio.Task[None], HttpConnection | None] = {}
        self._announced: dict[str, bytes] = {}
        self._lease: str = ""
        self._keeping: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._failures = ThinnedLog(log, clock)
        # Endpoint -> why it did not answer when it was last asked, and since when; "" if it did.
        self.seen: dict[str, tuple[str, int]] = {}

    # Keys

    async def get(self, key: str) -> tuple[bytes | None, int]:
        found = (await self._ask("/v3/kv/range", {"key": self._key(key)})).get("kvs", [])
        return (_value(found[0]), int(found[0]["mod_revision"])) if found else (None, 0)

    async def list(self, prefix: str) -> dict[str, tuple[bytes, int]]:
        answer = await self._ask("/v3/kv/range", self._range(prefix))
        return {self._name(kv): (_value(kv), int(kv["mod_revision"])) for kv in answer.get("kvs", [])}

    async def swap(self, key: str, version: int, value: bytes | None) -> bool:
        name = self._key(key)
        put = {"request_put": {"key": name, "value": _text(value)}} if value is not None else None
        act = put or {"request_delete_range": {"key": name}}
        compare = {"key": name, "target": "MOD", "mod_revision": str(version), "result": "EQUAL"}
        answer = await self._ask("/v3/kv/txn", {"compare": [compare], "success": [act]}, is_safe=False)
        return bool(answer.get("succeeded", False))

    def _key(self, key: str) -> str:
        return _text((self.prefix + key).encode())

    def _range(self, prefix: str) -> dict[str, str]:
        start = (self.prefix + prefix).encode()
        return {"key": _text(start), "range_end": _text(start[:-1] + bytes([start[-1] + 1]))}

    def _name(self, kv: dict[str, Any]) -> str:
        return b64decode(kv["key"]).decode().removeprefix(self.prefix)

    # Asking

    async def _ask(self, path: str, body: dict[str, Any], *, is_safe: bool = True) -> dict[str, Any]:
        """StoreUnknown when nobody answers in time. What may not be done twice is asked of one endpoint, once."""
        end_s = self._clock.monotonic() + PATIENCE_S
        cause: object = "no endpoint answers"
        while True:
            peer = self._peers[self._at]
            sent = False
            try:
                async with asyncio.timeout(CALL_S):
                    if self._user and not self._token:
                        await self._authenticate()
                    connection = self._take(peer) or await HttpConnection.open(peer)
                    sent = True
                    return await self._call(connection, path, body)
            except _Refused as error:
                cause = f"{peer}: {error}"
                if error.code == UNAUTHENTICATED or "auth token" in str(error):
                    self._token, sent = "", False
                elif error.code not in TRANSIENT and "leader" not in str(error):
                    raise StoreUnknown(f"etcd at {peer} refuses: {error}") from None
            except (OSError, ValueError, TimeoutError, msgspec.MsgspecError) as error:
                cause = f"{peer}: {str(error) or f'no answer in {CALL_S} s'}"
                self._move_on(peer, str(cause))
            if (sent and not is_safe) or self._clock.monotonic() >= end_s:
                raise StoreUnknown(f"etcd does not answer ({cause}); endpoints {', '.join(map(str, self._peers))}")
            await asyncio.sleep(RETRY_S)

    async def _call(self, connection: HttpConnection, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            status = await connection.post(path, msgspec.json.encode(body), self._token)
            answer = _decoded(await connection.read(), status, path, connection.peer)
        except _Refused:
            self._give_back(connection)
            raise
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)
        self._note(connection.peer, "")
        return answer

    def _take(self, peer: Peer) -> HttpConnection | None:
        for connection in self._idle:
            if connection.peer is peer:
                self._idle.remove(connection)
                return connection
        return None

    def _give_back(self, connection: HttpConnection) -> None:
        if len(self._idle) < IDLE_MAX and connection.peer is self._peers[self._at]:
            self._idle.append(connection)
        else:
            connection.close()

    def _move_on(self, peer: Peer, cause: str) -> None:
        """The next endpoint; what hangs on this one moves along."""
        self._note(peer, cause)
        if self._peers[self._at] is not peer:
            return
        self._failures.warning("no answer from etcd endpoint=%s cause=%s", peer, cause)
        self._at = (self._at + 1) % len(self._peers)
        for connection in [*self._idle, *(each for each in self._watches.values() if each is not None)]:
            connection.close()
        self._idle.clear()

    def _note(self, peer: Peer, cause: str) -> None:
        if self.seen.get(str(peer), ("-", 0))[0] != cause:
            self.seen[str(peer)] = (cause, self._clock.now_ms())

    def seen_text(self) -> str:
        parts = []
        for peer in self._peers:
            cause, since_ms = self.seen.get(str(peer), ("not asked yet", 0))
            parts.append(f"{peer} {cause.partition(': ')[2] or cause} since {since_ms}" if cause else f"{peer} ok")
        return "; ".join(part.replace(";", ",") for part in parts)

    async def _look_around(self) -> None:
        """At the nodes that are not in use: whether one could go there."""
        for peer in self._peers:
            if peer is self._peers[self._at]:
                continue
            try:
                async with asyncio.timeout(CALL_S):
                    (await HttpConnection.open(peer)).close()
                self._note(peer, "")
            except (OSError, TimeoutError) as error:
                self._note(peer, f"{peer}: {str(error) or f'no answer in {CALL_S} s'}")

    async def _authenticate(self) -> None:
        connection = await HttpConnection.open(self._peers[self._at])
        try:
            body = msgspec.json.encode({"name": self._user, "password": self._password})
            status = await connection.post("/v3/auth/authenticate", body, "")
            answer = _decoded(await connection.read(), status, "/v3/auth/authenticate", connection.peer)
            self._token = str(answer["token"])
        finally:
            connection.close()

    # Watching

    def watch(self, prefix: str, on_entry: OnEntry, on_live: OnLive) -> Callable[[], None]:
        task = asyncio.get_running_loop().create_task(self._watch(prefix, on_entry, on_live))
        self._watches[task] = None
        task.add_done_callback(lambda done: self._watches.pop(done, None))

        def end() -> None:
            task.cancel()

        return end

    async def _watch(self, prefix: str, on_entry: OnEntry, on_live: OnLive) -> None:
        known: set[str] = set()
        while True:
            try:
                await self._watch_once(prefix, known, on_entry, on_live)
            except (StoreUnknown, _Refused, OSError, ValueError, TimeoutError, msgspec.MsgspecError) as error:
                self._failures.warning("lost watch prefix=%s cause=%s", prefix, error)
            on_live(False)
            await asyncio.sleep(RETRY_S)

    async def _watch_once(self, prefix: str, known: set[str], on_entry: OnEntry, on_live: OnLive) -> None:
        answer = await self._ask("/v3/kv/range", self._range(prefix))
        revision = int(answer["header"]["revision"])
        present = {self._name(kv): kv for kv in answer.get("kvs", [])}
        task = asyncio.current_task()
        assert task is not None
        connection = await HttpConnection.open(self._peers[self._at])
        try:
            self._watches[task] = connection
            create = self._range(prefix) | {"start_revision": str(revision + 1)}
            body = msgspec.json.encode({"create_request": create})
            async with asyncio.timeout(CALL_S):
                status = await connection.post("/v3/watch", body, self._token)
            if status != 200:
                raise OSError(f"{connection.peer} answers {status} to a watch")
            for name in sorted(known - present.keys()):
                on_entry(name, None, revision)
            for name, kv in sorted(present.items()):
                on_entry(name, _value(kv), int(kv["mod_revision"]))
            known.clear()
            known.update(present)
            on_live(True)
            async for line in connection.lines():
                self._events(msgspec.json.decode(line), known, on_entry)
        finally:
            self._watches[task] = None
            connection.close()

    def _events(self, said: Any, known: set[str], on_entry: OnEntry) -> None:
        result = said.get("result", {})
        if "error" in said or result.get("canceled") or result.get("compact_revision"):
            raise OSError(f"the watch ended: {said.get('error') or result.get('cancel_reason') or 'compacted'}")
        for event in result.get("events", []):
            kv = event["kv"]
            name = self._name(kv)
            if event.get("type") == "DELETE":
                known.discard(name)
                on_entry(name, None, int(kv["mod_revision"]))
            else:
                known.add(name)
                on_entry(name, _value(kv), int(kv["mod_revision"]))

    # What vanishes with this process

    async def announce(self, key: str, value: bytes, session_ms: int) -> None:
        self._announced[key] = value
        if not self._lease:
            await self._grant(session_ms)
        else:
            await self._put(key, value)
        if self._keeping is None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep(session_ms))

    async def _grant(self, session_ms: int) -> None:
        answer = await self._ask("/v3/lease/grant", {"TTL": str(max(2, session_ms // 1000))})
        self._lease = str(answer["ID"])
        for key, value in self._announced.items():
            await self._put(key, value)

    async def _put(self, key: str, value: bytes) -> None:
        await self._ask("/v3/kv/put", {"key": self._key(key), "value": _text(value), "lease": self._lease})

    async def _keep(self, session_ms: int) -> None:
        looked_s = self._clock.monotonic() - LOOK_AROUND_S
        while True:
            await asyncio.sleep(min(1.0, session_ms / 3000))
            if self._clock.monotonic() - looked_s >= LOOK_AROUND_S and self._looking is None:
                looked_s = self._clock.monotonic()
                self._looking = asyncio.get_running_loop().create_task(self._look_around())
                self._looking.add_done_callback(self._looked)
            try:
                if self._lease:
                    answer = await self._ask("/v3/lease/keepalive", {"ID": self._lease})
                    if int(answer.get("result", {}).get("TTL", "0")) > 0:
                        continue
                    log.warning("lost session with etcd lease=%s: it took too long to answer", self._lease)
                    self._lease = ""
                await self._grant(session_ms)
            except StoreUnknown as error:
                self._failures.warning("fail to keep session cause=%s", error)

    def _looked(self, _: asyncio.Task[None]) -> None:
        self._looking = None

    async def stop(self) -> None:
        tasks = [*self._watches, *(task for task in (self._keeping, self._looking) if task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._lease:
            with suppress(StoreUnknown, TimeoutError):
                async with asyncio.timeout(CALL_S):
                    await self._ask("/v3/lease/revoke", {"ID": self._lease})
            self._lease = ""
        for connection in self._idle:
            connection.close()
        self._idle.clear()


def _decoded(body: bytes, status: int, path: str, peer: Peer) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        if status == 404:
            raise OSError(
                f"{peer} has no {path}: etcd 3.4 or later is needed, with its JSON gateway (--enable-grpc-gateway)"
            ) from None
        raise OSError(f"{peer} answers {status} with what is no JSON") from None
    if not isinstance(answer, dict):
        raise OSError(f"{peer} answers with what is no object")
    if status != 200 or "error" in answer:
        raise _Refused(int(answer.get("code", 0)), str(answer.get("message") or answer.get("error"))[:200])
    return answer


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _value(kv: dict[str, Any]) -> bytes:
    return b64decode(kv.get("value", ""))


def _peer(text: str, context: ssl.SSLContext | None) -> Peer:
    host, _, port = text.rpartition(":") if ":" in text else (text, "", str(PORT))
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"controllerStore: {text[:80]} is no endpoint: host:2379")
    return Peer(host.strip("[]"), int(port), context)


def _context(options: dict[str, str]) -> ssl.SSLContext | None:
    if "ca" not in options:
        if "cert" in options or "key" in options:
            raise ConfigError("controllerStore: cert and key need ca, by which etcd's own certificate is verified")
        return None
    try:
        context = ssl.create_default_context(cafile=options["ca"])
        if "cert" in options:
            context.load_cert_chain(options["cert"], options.get("key"))
    except OSError as error:
        raise ConfigError(f"controllerStore: cannot load ca, cert or key: {error}") from error
    return context


def _password(options: dict[str, str]) -> str:
    if "password-file" not in options:
        password = os.environ.get(PASSWORD_VARIABLE, "")
        if not password:
            raise ConfigError(f"controllerStore has a user: set {PASSWORD_VARIABLE}, or password-file= in its address")
        return password
    try:
        with open(options["password-file"], encoding="utf-8") as file:
            return file.read().strip()
    except OSError as error:
        raise ConfigError(f"controllerStore: cannot read password-file: {error}") from error
