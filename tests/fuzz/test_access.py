"""Fuzzed requests at a closed broker, with right, wrong and no signatures: refused or served, never a bug.

COMETMQ_FUZZ_ACCESS sets the number of requests, COMETMQ_FUZZ_SEED the seed; both are printed by a failure.
"""

import asyncio
import logging
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from cometmq.auth.access import ALLOWED_MAX, PAIRS_MAX
from cometmq.auth.signer import Signer
from cometmq.clock import ManualClock
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, encode
from cometmq.wire.frame import FrameSplitter
from tests.fuzz.test_requests import LEFT_OUT, OFTEN, Crowd, field_names, invented
from tests.support.access import SECURED, add_user, allow, password_of, signed_peer
from tests.support.aio import run
from tests.support.brokers import add_topic, running_broker
from tests.support.length import count
from tests.support.served import CODES

INPUTS = count("COMETMQ_FUZZ_ACCESS", 4000, 20000, 500000)
SEED = int(os.environ.get("COMETMQ_FUZZ_SEED", "20261115"))
REPLAY = f"COMETMQ_FUZZ_SEED={SEED} COMETMQ_FUZZ_ACCESS={INPUTS} pytest tests/fuzz/test_access.py"

USERS = ["alice", "root", "nobody", "", "a" * 5000, "\x00\r\n", "Grüße \U0001f600"]
FIELDS = {
    "username": [*USERS, "bob"],
    "subject": ["User:alice", "User:", "alice", "", "User:nobody", "Group:alice"],
    "policyType": ["Custom", "Default", "", "x"],
    "resource": ["Topic:TopicA", "*", "garbage", "Topic:*", "", ":", "Topic:" + "x" * 5000],
    "overlapMs": ["0", "60000", "-1", "9" * 30, "x"],
    "Signature": ["", "A" * 27 + "=", "ü" * 28, "x" * 5000],
    "SecurityToken": ["", "token"],
    "\U0001f680": ["x"],
}
BODIES = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"[" * 300,
    b"\xff",
    b'{"password":"12345678","userType":"Super"}',
    b'{"password":5}',
    b'{"password":"%s"}' % (b"x" * 5000),
    b'{"policies":[{"entries":[{"resource":"Topic:TopicA","actions":["Pub"],"decision":"Allow"}]}]}',
    b'{"policies":[{"entries":[{"resource":"Topic:T","actions":["Fly"],"decision":"x","sourceIps":["::/0","h"]}]}]}',
    b'{"policies":[null,{"entries":[null]}],"subject":"User:alice"}',
    b'{"policies":[{"entries":[%s]}]}' % b",".join([b"{}"] * 2000),
]


@pytest.mark.mission("AC-10")
@pytest.mark.repeated
def test_fuzzed_requests_at_a_closed_broker_are_refused_or_served(tmp_path: Path) -> None:
    logging.disable(logging.CRITICAL)
    try:
        run(_fuzz(tmp_path), timeout_s=1200)
    finally:
        logging.disable(logging.NOTSET)


async def _fuzz(directory: Path) -> None:
    chance = random.Random(SEED)
    clock = ManualClock()
    codes = sorted(CODES - LEFT_OUT - {Request.AUTH_DELETE_USER}) + sorted(OFTEN) * 5 + list(range(3001, 3011)) * 10
    names = field_names()
    settings = {"autoCreateTopicEnable": False, "serverChannelMaxIdleTimeSeconds": 10_000_000}
    async with running_broker(directory, clock, **SECURED, **settings) as broker, signed_peer(broker) as root:
        add_topic(broker, "TopicA", 4)
        await add_user(root, "alice", allow("Topic:TopicA", "Pub", "Sub"), allow("Group:consumers", "Sub"))
        await root.client.stop()
        users, kept = broker.access.users, list(broker.access.users.table.values())
        crowd = Crowd(broker, 10)
        for number in range(INPUTS):
            command = FrameSplitter().feed(invented(chance, codes, names))[0]
            crowd.feed(encode(_signed(command, chance)), chance)
            if number % 50 == 0:
                for user in kept:  # so that there is somebody who may do something
                    users.put(user)
                await asyncio.sleep(0)
            if number % 500 == 0:
                clock.advance(3.0)
        for _ in range(3):
            clock.advance(3.0)
            await asyncio.sleep(0)
        crowd.leave()
        assert not crowd.bugs, f"{Counter(crowd.bugs).most_common(5)}\nreplay: {REPLAY}"
        assert crowd.codes[16] > INPUTS / 4, crowd.codes
        assert crowd.codes[0] > INPUTS / 20, crowd.codes
        checks = broker.access.checks
        assert len(checks._allowed) <= ALLOWED_MAX
        assert len(checks._wrong) <= PAIRS_MAX


def _signed(command: Command, chance: random.Random) -> Command:
    if 3001 <= command.code <= 3010:
        command.ext = {name: chance.choice(values) for name, values in FIELDS.items() if chance.random() < 0.4}
        command.body = chance.choice(BODIES)
    name = chance.choice(("alice", "alice", "root", chance.choice(USERS)))
    if chance.random() < 0.8:
        Signer(name, password_of(name)).before("", command)
    for _ in range(chance.randrange(3) if chance.random() < 0.3 else 0):
        field = chance.choice(list(FIELDS))
        command.ext[field] = chance.choice(FIELDS[field])
    return command
