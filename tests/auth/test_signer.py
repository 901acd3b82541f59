"""Signatures on outgoing requests."""

from cometmq.auth.signature import key_of
from cometmq.auth.signer import Signer
from cometmq.wire.command import request


def test_the_signature_is_javas() -> None:
    ext = {"consumerGroup": "CG", "queueId": "0", "topic": "T"}
    command = request(11, ext, b"hello")
    Signer("ak", "sk1234567").before("peer", command)
    assert command.ext["Signature"] == "ax3USRikd5ShlDbTPnCKstacIQY="
    assert command.ext["AccessKey"] == "ak"
    Signer("ak", "sk1234567").before("peer", command)  # once more, for a retry
    assert command.ext["Signature"] == "ax3USRikd5ShlDbTPnCKstacIQY="


def test_a_secret_may_change_while_it_signs() -> None:
    signer = Signer("ak", "old")
    signer.renew("new")
    command = request(11, {"a": "1"})
    signer.before("peer", command)
    assert signer.user == "ak"
    assert command.ext["Signature"] == key_of("new").sign(b"ak1")


def test_a_token_is_signed_too() -> None:
    command = request(11, {"a": "1"})
    Signer("ak", "sk", "token").before("peer", command)
    assert command.ext["SecurityToken"] == "token"
    assert command.ext["Signature"] == key_of("sk").sign(b"aktoken1")
