"""Signatures: all recorded ones, through the real frame decoder, in both directions."""

from typing import Any

import pytest

from cometmq.auth import signature
from cometmq.wire.command import decode
from tests.support.auth_vectors import vectors


@pytest.mark.mission("AC-01")
@pytest.mark.parametrize("vector", vectors("sign"), ids=lambda vector: vector["name"])
def test_a_recorded_request_is_signed_and_verified(vector: dict[str, Any]) -> None:
    frame = bytes.fromhex(vector["frame_hex"])
    request = decode(frame, 4, len(frame))
    assert request.ext == vector["ext"]
    signed = signature.content(request.ext, request.body, request.version)
    assert signed.hex() == vector["content_hex"]
    secret = vector["secret_key"].encode()
    assert signature.sign(secret, signed) == vector["signature"]
    assert signature.fits(secret, signed, request.ext["Signature"]) is vector["server_accepts"]
    assert not signature.fits(secret + b"x", signed, request.ext["Signature"])


@pytest.mark.parametrize("vector", vectors("verify"), ids=lambda vector: vector["name"])
def test_old_clients_leave_the_unique_key_query_out(vector: dict[str, Any]) -> None:
    signed = signature.content(vector["ext"], bytes.fromhex(vector["body_hex"]), vector["version"])
    assert signed.hex() == vector["content_hex"]
    assert signature.sign(vector["secret_key"].encode(), signed) == vector["signature"]


@pytest.mark.parametrize("vector", vectors("grpc"))
def test_the_authorization_header_of_grpc_is_read(vector: dict[str, Any]) -> None:
    found = signature.read_authorization(vector["authorization"])
    assert found is not None
    assert tuple(found) == (vector["parsed_username"], vector["parsed_signature"])
    signed = vector["x-mq-date-time"].encode()
    assert signed.hex() == vector["content_hex"]
    assert signature.fits(vector["secret_key"].encode(), signed, found.signature)


@pytest.mark.parametrize(
    "header", ["", "MQv2-HMAC-SHA1", "Basic abc", "MQv2-HMAC-SHA1 Credential=a, Signature=zz", "x Signature=00"]
)
def test_an_authorization_header_of_another_form_names_nobody(header: str) -> None:
    assert signature.read_authorization(header) is None


@pytest.mark.parametrize("text", ["", "A" * 27, "A" * 29, "A" * 1_000_000, "Ä" * 28])
def test_a_signature_of_another_length_or_alphabet_fits_nothing(text: str) -> None:
    assert not signature.fits(b"secret", b"content", text)


def test_a_half_surrogate_in_a_field_has_a_signature_instead_of_an_error() -> None:
    assert signature.content({"AccessKey": "\ud800"}, b"", 513)
