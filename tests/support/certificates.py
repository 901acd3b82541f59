"""Certificates for TLS tests, made once per run: an authority, and pairs that it signed."""

import datetime
import functools
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

BORN = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
LIFE = datetime.timedelta(days=365 * 50)


@dataclass(frozen=True)
class Pair:
    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[str, str]:
        """The paths of certificate and key."""
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.write_bytes(self.key)
        return str(certificate), str(key)


@functools.cache
def _authority(name: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    return key, _certificate(name, key, name, key, is_authority=True)


@functools.cache
def authority(name: str = "authority") -> bytes:
    """Its certificate: the content of a trust file."""
    return _authority(name)[1].public_bytes(serialization.Encoding.PEM)


@functools.cache
def pair(name: str, signed_by: str = "authority", hosts: tuple[str, ...] = ("localhost", "127.0.0.1")) -> Pair:
    """`hosts`: names and addresses for which it is made out."""
    authority_key, _ = _authority(signed_by)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(name, key, signed_by, authority_key, is_authority=False, hosts=hosts)
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    is_authority: bool,
    hosts: tuple[str, ...] = (),
) -> x509.Certificate:
    builder = x509.CertificateBuilder(
        issuer_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]),
        subject_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=BORN,
        not_valid_after=BORN + LIFE,
    ).add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), False)
    return builder.sign(issuer_key, hashes.SHA256())


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
