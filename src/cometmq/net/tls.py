"""TLS: contexts from files, the watch over those files, and a session without I/O.

Whether a connection may be plain or TLS is decided by its first byte and the mode (docs/decisions/0004-tls.md):

    mode          first byte 0x16                        other
    disabled      closed                                 plain
    permissive    TLS if there is a context, else closed plain
    enforcing     TLS                                    closed

`TlsSession` turns ciphertext into plaintext and back over two memory buffers; the connection moves the bytes.

The files are looked at every 500 ms. A changed trust file, or a certificate and a key that have both changed, makes a
new context for connections to come; open ones keep theirs. A key alone changes nothing, because it does not fit the
certificate yet. A pair that does not load leaves the old context in use until its files change again.

A client verifies the chain and the name of the server unless a setting says otherwise: RocketMQ's client verifies
neither unless `tls.client.authServer=true`, and then the chain only.
"""

import hashlib
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from cometmq.clock import Clock, Timer
from cometmq.config import TlsConfig
from cometmq.errors import CometError, ConfigError, WireError
from cometmq.secret_text import read_secret
from cometmq.wire import java_properties

logger = logging.getLogger(__name__)

DISABLED = "disabled"
PERMISSIVE = "permissive"
ENFORCING = "enforcing"

FILE_KEY = "tls.config.file"
NOT_IN_FILE = frozenset(("tls.server.mode", "tls.enable", FILE_KEY))

WATCH_S = 0.5
RECORD_BYTES = 16_384

# X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_NAME_FAULTS = (62, 64)

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The server's side. Any mode that is not one of the three counts as permissive, as in RocketMQ."""

    mode: str = PERMISSIVE
    certificate_path: str | None = None
    key_path: str | None = None
    key_password: str | None = field(default=None, repr=False)
    trust_path: str | None = None
    client_auth: str = "none"

    @classmethod
    def of(cls, config: TlsConfig) -> "TlsSettings":
        return cls(
            mode=config.tls_mode,
            certificate_path=config.tls_certificate_path or None,
            key_path=config.tls_key_path or None,
            key_password=_password("tls.server.keyPassword", config.tls_key_password),
            trust_path=config.tls_trust_path or None,
            client_auth=config.tls_client_auth,
        )


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The client's side: what the server must prove, and what we show of ourselves.

    verify          its certificate was issued by an authority of `trust_path`, or of the system if there is none.
                    False takes any certificate: what is sent is encrypted, but anybody may be at the other end
    check_name      and it is made out for the host name or IP address that is dialled (subjectAltName)
    server_name     or for this name instead, whatever is dialled: name servers give out brokers' IP addresses
    """

    verify: bool = True
    trust_path: str | None = None
    certificate_path: str | None = None
    key_path: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_name: bool = True
    server_name: str | None = None

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "ClientTls | None":
        """By RocketMQ's keys; None unless `tls.enable` is true. What is not given is safe: `tls.client.authServer` is
        true unless it says false. `tls.client.checkName` and `tls.client.serverName` are our own."""
        if not _flag(settings, "tls.enable", default=False):
            return None
        return cls(
            verify=_flag(settings, "tls.client.authServer", default=True),
            trust_path=settings.get("tls.client.trustCertPath") or None,
            certificate_path=settings.get("tls.client.certPath") or None,
            key_path=settings.get("tls.client.keyPath") or None,
            key_password=_password("tls.client.keyPassword", settings.get("tls.client.keyPassword", "")),
            check_name=_flag(settings, "tls.client.checkName", default=True),
            server_name=settings.get("tls.client.serverName") or None,
        )

    @classmethod
    def of_server(cls, config: TlsConfig) -> "ClientTls | None":
        """What a server dials other servers with. Unless `tls.enable` says otherwise it does as it demands itself."""
        is_enabled = config.tls_outgoing or str(config.tls_mode == ENFORCING).lower()
        if is_enabled == "false":
            return None
        return cls(
            verify=config.tls_outgoing_verified,
            trust_path=config.tls_outgoing_trust_path or None,
            certificate_path=config.tls_outgoing_certificate_path or None,
            key_path=config.tls_outgoing_key_path or None,
            key_password=_password("tls.client.keyPassword", config.tls_outgoing_key_password),
            check_name=config.tls_outgoing_name_checked,
            server_name=config.tls_outgoing_server_name or None,
        )


def _password(key: str, text: str) -> str | None:
    """A setting may name a file, which keeps the password out of process lists and files of settings."""
    return read_secret(key, text) or None


def with_file(texts: dict[str, str]) -> dict[str, str]:
    """Settings with those of the file that `tls.config.file` names, which go over them, as in RocketMQ: all that are
    about TLS but the mode and `tls.enable`. Raises ConfigError."""
    path = texts.get(FILE_KEY, "").strip()
    if not path:
        return texts
    try:
        read = java_properties.parse(Path(path).read_bytes())
    except (OSError, WireError) as error:
        raise ConfigError(f"{FILE_KEY}={path} cannot be read: {error}") from error
    return texts | {key: text for key, text in read.items() if key.startswith("tls.") and key not in NOT_IN_FILE}


def _flag(settings: Mapping[str, str], key: str, *, default: bool) -> bool:
    text = settings.get(key, "").strip().lower()
    if text not in ("", "true", "false"):
        raise ConfigError(f"{key} is {text!r}: it is true or false")
    return text == "true" if text else default


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Raises CometError that names the file or setting at fault."""
    if settings.client_auth not in _CLIENT_AUTH:
        raise CometError(f"client auth is {settings.client_auth!r}, known are {', '.join(_CLIENT_AUTH)}")
    if settings.client_auth != "none" and settings.trust_path is None:
        raise CometError(f"client auth {settings.client_auth!r} needs a trust file to check certificates with")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if settings.certificate_path is None or settings.key_path is None:
        raise CometError("certificate and key paths are not both set")
    _load_pair(context, settings.certificate_path, settings.key_path, settings.key_password)
    if settings.trust_path is not None:
        _load_trust(context, settings.trust_path)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    return context


def client_context(settings: ClientTls) -> ssl.SSLContext:
    """Raises CometError that names the file or setting at fault."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.verify and settings.check_name
    if settings.server_name is not None and not context.check_hostname:
        raise CometError(
            f"server_name is {settings.server_name!r}, but no name is compared: leave it out, or set verify and "
            "check_name to true"
        )
    if not settings.verify:
        context.verify_mode = ssl.CERT_NONE
        logger.warning("skip verification of servers: anybody may pose as one; set verify=True and trust_path")
    elif settings.trust_path is not None:
        _load_trust(context, settings.trust_path)
    else:
        context.load_default_certs()
    if (settings.certificate_path is None) != (settings.key_path is None):
        raise CometError("certificate_path and key_path belong together: give both or neither")
    if settings.certificate_path is not None and settings.key_path is not None:
        _load_pair(context, settings.certificate_path, settings.key_path, settings.key_password)
    return context


def _load_pair(context: ssl.SSLContext, certificate: str, key: str, password: str | None) -> None:
    try:
        # Without a password function OpenSSL would ask at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: password or "")
    except (OSError, ValueError) as error:
        raise CometError(f"certificate {certificate} with key {key} does not load: {error}") from error


def _load_trust(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise CometError(f"trust file {path} does not load: {error}") from error


class TlsSession:
    """One connection's TLS, between bytes and bytes. `ready` after the handshake, `closed` after the peer's goodbye."""

    __slots__ = ("_incoming", "_name", "_object", "_outgoing", "closed", "ready")

    def __init__(self, context: ssl.SSLContext, server_side: bool, server_name: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._name = server_name
        self._object = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name
        )
        self.ready = False
        self.closed = False

    def feed(self, data: bytes) -> bytes:
        """Take what the socket gave (nothing, to begin a handshake); gives plaintext. Raises WireError."""
        self._incoming.write(data)
        try:
            if not self.ready:
                self._object.do_handshake()
                self.ready = True
            return self._read_all()
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLCertVerificationError as error:
            raise WireError(f"TLS failed: {self._distrust(error)}") from error
        except ssl.SSLError as error:
            hint = ": the other side does not speak TLS" if error.reason == "WRONG_VERSION_NUMBER" else ""
            raise WireError(f"TLS failed: {error}{hint}") from error

    def _distrust(self, error: ssl.SSLCertVerificationError) -> str:
        """Why the peer's certificate is not taken, and what to change."""
        cause = f"certificate verify failed: {error.verify_message}"
        if self._name is None:
            return cause
        if error.verify_code in _NAME_FAULTS:
            return (
                f"{cause}; the server's certificate needs {self._name} in its subjectAltName, or give the name that it "
                "has as server_name (tls.client.serverName), or set check_name=False (tls.client.checkName=false)"
            )
        return (
            f"{cause}; give the certificate of the server's authority as trust_path (tls.client.trustCertPath), or "
            "set verify=False (tls.client.authServer=false) to take any certificate"
        )

    def _read_all(self) -> bytes:
        chunks: list[bytes] = []
        try:
            while chunk := self._object.read(RECORD_BYTES):
                chunks.append(chunk)
            self.closed = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.closed = True
        return b"".join(chunks)

    @property
    def subject(self) -> str:
        """Whom the peer's certificate names; empty if none was shown, or none was asked for."""
        shown = self._object.getpeercert() if self.ready else None
        names = cast("tuple[tuple[tuple[str, str], ...], ...]", shown.get("subject", ()) if shown else ())
        return ",".join(f"{key}={value}" for parts in names for key, value in parts)

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._object.write(rest) :]

    def close(self) -> None:
        """Say goodbye, if the session got that far."""
        try:
            self._object.unwrap()
        except (ssl.SSLError, ValueError):
            return

    def take(self) -> bytes:
        """What must be written to the socket now."""
        return self._outgoing.read()


class ServerTls:
    """The mode, and the context of the moment."""

    def __init__(
        self,
        settings: TlsSettings,
        clock: Clock,
        protocols: Sequence[str] = (),
        instead: Callable[[], ssl.SSLContext | None] | None = None,
    ) -> None:
        """`protocols`: what is chosen of a client's offers (ALPN). `instead`: a context where no file is set."""
        self.mode = settings.mode if settings.mode in (DISABLED, ENFORCING) else PERMISSIVE
        self.context: ssl.SSLContext | None = None
        self._protocols = list(protocols)
        self._instead = instead
        self._settings = settings
        self._clock = clock
        self._prints: dict[str, bytes] = {}
        self._changed: set[str] = set()
        self._timer: Timer | None = None

    def start(self) -> None:
        """Build the context and begin to watch. Raises CometError only if plain connections are not allowed either."""
        if self.mode == DISABLED:
            return
        paths = (self._settings.certificate_path, self._settings.key_path, self._settings.trust_path)
        self._prints = {path: fingerprint(path) for path in paths if path is not None}
        if not self._prints and self._instead is not None:
            self.context = self._with_protocols(self._instead())
        if not self._prints and (self.mode == PERMISSIVE or self.context is not None):
            return
        try:
            self.context = self._with_protocols(server_context(self._settings))
        except CometError as error:
            if self.mode == ENFORCING:
                raise CometError(f"TLS is enforced but has no context: {error}") from error
            logger.warning("skip tls mode=%s cause=%s", self.mode, error)
        self._timer = self._clock.call_later(WATCH_S, self._watch)

    def _with_protocols(self, context: ssl.SSLContext | None) -> ssl.SSLContext | None:
        if context is not None and self._protocols:
            context.set_alpn_protocols(self._protocols)
        return context

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def admit(self, secure: bool) -> TlsSession | None:
        """A session for a TLS peer, None for a plain one; WireError for one that the mode does not allow."""
        if not secure:
            if self.mode == ENFORCING:
                raise WireError("plain connection, but TLS is enforced (tls.server.mode)")
            return None
        if self.mode == DISABLED:
            raise WireError("TLS connection, but TLS is disabled (tls.server.mode)")
        if self.context is None:
            raise WireError("TLS connection, but there is no certificate (tls.server.certPath, tls.server.keyPath)")
        return TlsSession(self.context, server_side=True)

    def _watch(self) -> None:
        self._timer = self._clock.call_later(WATCH_S, self._watch)
        found = {path: fingerprint(path) for path in self._prints}
        changed = {path for path, print_ in found.items() if print_ and print_ != self._prints[path]}
        if not changed:
            return
        self._prints |= {path: found[path] for path in changed}
        self._changed |= changed
        pair = {self._settings.certificate_path, self._settings.key_path}
        if self._settings.trust_path in self._changed or pair <= self._changed:
            self._reload()

    def _reload(self) -> None:
        try:
            self.context = self._with_protocols(server_context(self._settings))
        except CometError as error:
            logger.warning("keep tls context cause=%s", error)
            return
        logger.info("reload tls files=%s", ",".join(sorted(self._changed)))
        self._changed.clear()


def fingerprint(path: str) -> bytes:
    """A hash of a file's content; empty if it cannot be read, as in the middle of its replacement."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).digest()
    except OSError:
        return b""
