"""Hostile peers hurt only themselves: every attack of the corpus, with its three numbers. See corpus.py"""

import sys
from pathlib import Path

import pytest

from tests.attack import broker_attacks, client_attacks, corpus, grpc_attacks, nameserver_attacks, slow_peers
from tests.attack.client_attacks import CLIENT_ATTACKS, ClientAttack
from tests.attack.corpus import ATTACKS, Attack

MODULES = (broker_attacks, grpc_attacks, nameserver_attacks, slow_peers)  # each enters its attacks into the table

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")


def rows_of(attack: Attack) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.mission("GR-09"),) if attack.kind == "grpc" else ()


@pytest.mark.parametrize("attack", [pytest.param(it, id=it.name, marks=rows_of(it)) for it in ATTACKS])
def test_an_attack_hurts_only_its_sender(tmp_path: Path, attack: Attack) -> None:
    outcome = corpus.play(attack, tmp_path)
    print(outcome.line())
    corpus.check(attack, outcome)


@pytest.mark.parametrize("attack", CLIENT_ATTACKS, ids=lambda attack: attack.name)
def test_a_server_that_lies_does_not_stop_its_clients_program(tmp_path: Path, attack: ClientAttack) -> None:
    outcome = client_attacks.play(attack, tmp_path)
    print(outcome.line())
    client_attacks.check(attack, outcome)
