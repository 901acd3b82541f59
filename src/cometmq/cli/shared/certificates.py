"""An authority of one's own, and certificates that it signs: P-256 keys, X.509 v3, PEM.

    authority    signs certificates and nothing below them; ten years
    server       for the names and addresses of servers; also what a server shows when it dials another one
    client       what a program shows to servers that ask for a certificate

Keys are PKCS#8 without a password: RocketMQ's servers read them, too. The cryptography package makes them, which only
this module needs (docs/decisions/0092-certificates-by-an-extra.md).
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cometmq.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY_DAYS: Final = 3650
DAYS_MAX: Final = 3650
HOSTS_MAX: Final = 100
NAME_CHARS_MAX: Final = 64
# Clocks of machines differ: a certificate is good a little before it was made.
EARLIER: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Pair:
    certificate: bytes
    key: bytes = field(repr=False)


def need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigError(
            "making certificates needs the cryptography package: pip install 'cometmq[tls]', or make them with openssl"
        ) from None


def make_authority(name: str) -> Pair:
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    return _pair(key, _certificate(name, key, None, AUTHORITY_DAYS, ()))


def make_server(authority: Pair, name: str, hosts: Sequence[str], days: int) -> Pair:
    """`hosts`: the names and addresses by which it is dialled."""
    if not 1 <= len(hosts) <= HOSTS_MAX:
        raise ConfigError(f"{len(hosts)} hosts are given, allowed are 1 to {HOSTS_MAX}")
    return _signed(authority, name, hosts, days)


def make_client(authority: Pair, name: str, days: int) -> Pair:
    return _signed(authority, name, (), days)


def _signed(authority: Pair, name: str, hosts: Sequence[str], days: int) -> Pair:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    if not 1 <= days <= DAYS_MAX:
        raise ConfigError(f"a certificate for {days} days: allowed are 1 to {DAYS_MAX}")
    try:
        issuer = x509.load_pem_x509_certificate(authority.certificate)
        issuer_key = serialization.load_pem_private_key(authority.key, None)
    except (ValueError, TypeError):
        raise ConfigError("the authority's certificate or key is not PEM without a password: make a new one") from None
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey) or issuer.public_key() != issuer_key.public_key():
        raise ConfigError("the authority's key does not belong to its certificate: make a new one")
    key = ec.generate_private_key(ec.SECP256R1())
    return _pair(key, _certificate(name, key, (issuer, issuer_key), days, hosts))


def _pair(key: "ec.EllipticCurvePrivateKey", certificate: "x509.Certificate") -> Pair:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return Pair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _certificate(
    name: str,
    key: "ec.EllipticCurvePrivateKey",
    issuer: "tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None",
    days: int,
    hosts: Sequence[str],
) -> "x509.Certificate":
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    if not 1 <= len(name) <= NAME_CHARS_MAX:
        raise ConfigError(f"the name of a certificate has {len(name)} characters, allowed are 1 to {NAME_CHARS_MAX}")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    is_authority = issuer is None
    signer = issuer[1] if issuer is not None else key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(_usage(is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if not is_authority:
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if hosts:
        names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA256())


def _usage(is_authority: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    labels = host.removeprefix("*.").split(".")
    if len(host) > 253 or not all(label.isascii() and label.replace("-", "").isalnum() for label in labels):
        raise ConfigError(f"{host[:80]!r} is neither an IP address nor a host name")
    return x509.DNSName(host)
