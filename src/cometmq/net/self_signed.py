"""A certificate that a server makes for itself at its start, for clients that take any: CN=localhost, in memory only.

RocketMQ's proxy has one unless it is given files (`tlsTestModeEnable`), and its Java and Go clients use TLS, with any
certificate, unless they are told otherwise. What is sent is encrypted, but anybody may be at the other end.
"""

import datetime
import logging
import os
import ssl
import tempfile

logger = logging.getLogger(__name__)

VALID_UNTIL = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)
BACKDATED = datetime.timedelta(days=365)


def context() -> ssl.SSLContext | None:
    """None, with a line in the log, where the package that makes certificates is not installed."""
    try:
        pem = _pair()
    except ImportError:
        logger.warning(
            "skip tls of gRPC: no certificate is set and none can be made: pip install 'cometmq[tls]', or set "
            "tls.server.certPath and tls.server.keyPath; Java and Go clients then need no TLS switched off"
        )
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION
    # Python reads pairs from files only; this one is gone before anybody connects.
    handle, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(pem)
        made.load_cert_chain(path)
    finally:
        os.unlink(path)
    return made


def _pair() -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime.now(datetime.UTC) - BACKDATED)
        .not_valid_after(VALID_UNTIL)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
