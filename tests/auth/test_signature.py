"""Signatures: all recorded ones, through the real frame decoder, in both directions."""

import hmac
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
    values = signature.signed_values(request.ext, request.version)
    assert (values + request.body).hex() == vector["content_hex"]
    key, other = signature.key_of(vector["secret_key"]), signature.key_of(vector["secret_key"] + "x")
    assert key.sign(values, request.body) == vector["signature"]
    assert key.fits(request.ext["Signature"], values, request.body) is vector["server_accepts"]
    assert not other.fits(request.ext["Signature"], values, request.body)


@pytest.mark.parametrize("vector", vectors("verify"), ids=lambda vector: vector["name"])
def test_old_clients_leave_the_unique_key_query_out(vector: dict[str, Any]) -> None:
    values, body = signature.signed_values(vector["ext"], vector["version"]), bytes.fromhex(vector["body_hex"])
    assert (values + body).hex() == vector["content_hex"]
    assert signature.key_of(vector["secret_key"]).sign(values, body) == vector["signature"]


@pytest.mark.parametrize("vector", vectors("grpc"))
def test_the_authorization_header_of_grpc_is_read(vector: dict[str, Any]) -> None:
    found = signature.read_authorization(vector["authorization"])
    assert found is not None
    assert tuple(found) == (vector["parsed_username"], vector["parsed_signature"])
    signed = vector["x-mq-date-time"].encode()
    assert signed.hex() == vector["content_hex"]
    assert signature.key_of(vector["secret_key"]).fits(found.signature, signed)


@pytest.mark.parametrize(
    "header", ["", "MQv2-HMAC-SHA1", "Basic abc", "MQv2-HMAC-SHA1 Credential=a, Signature=zz", "x Signature=00"]
)
def test_an_authorization_header_of_another_form_names_nobody(header: str) -> None:
    assert signature.read_authorization(header) is None


@pytest.mark.parametrize("text", ["", "A" * 27, "A" * 29, "A" * 1_000_000, "Ä" * 28])
def test_a_signature_of_another_length_or_alphabet_fits_nothing(text: str) -> None:
    assert not signature.key_of("secret").fits(text, b"content")


def test_a_half_surrogate_in_a_field_has_a_signature_instead_of_an_error() -> None:
    assert signature.signed_values({"AccessKey": "\ud800"}, 513)


@pytest.mark.parametrize("size_bytes", [0, 1, 63, 64, 65, 200])
def test_a_prepared_key_signs_as_hmac_does(size_bytes: int) -> None:
    secret = b"s" * size_bytes
    assert signature.SigningKey(secret).digest(b"values", b"body") == hmac.digest(secret, b"valuesbody", "sha1")


def test_the_order_of_fields_in_the_request_does_not_matter() -> None:
    fields = {"b": "2", "Signature": "x", "a": "1", "C": "3"}
    turned = dict(reversed(fields.items()))
    for _ in range(2):  # the second time from what was kept
        assert signature.signed_values(fields, 513) == signature.signed_values(turned, 513) == b"312"


def test_field_names_of_peers_are_kept_within_a_bound() -> None:
    for number in range(3 * signature.ORDERS_MAX):
        signature.signed_values({f"field{number}": "v"}, 513)
    signature.signed_values({"n" * (signature.ORDER_CHARS_MAX + 1): "v"}, 513)
    signature.signed_values(dict.fromkeys(map(str, range(signature.ORDER_NAMES_MAX + 1)), "v"), 513)
    assert len(signature._orders) <= signature.ORDERS_MAX
    assert sum(len("".join(names)) for names in signature._orders) <= signature.ORDERS_MAX * signature.ORDER_CHARS_MAX
    assert all(len(names) <= signature.ORDER_NAMES_MAX for names in signature._orders)
