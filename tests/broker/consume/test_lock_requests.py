"""Queue locks, as two clients see them."""

import pytest

from cometmq.broker.consume.clients import connection_closed, unregister
from cometmq.broker.consume.lock_requests import HANDLERS, lock, unlock
from cometmq.errors import RequestError
from cometmq.wire.bodies import LockBatchRequest, LockBatchResponse, MessageQueue
from cometmq.wire.codes import Request, Response
from tests.broker.assembly import Assembly, FakeLink, ask
from tests.broker.consume.test_clients import beat, consumer, golden_requests

QUEUE = MessageQueue("broker-a", 3, "T")


def try_lock(broker: Assembly, client_id: str, *queues: MessageQueue) -> list[MessageQueue]:
    body = LockBatchRequest(client_id=client_id, consumer_group="g", mq_set=list(queues or (QUEUE,)))
    response = lock(broker.for_members, FakeLink(), ask(Request.LOCK_BATCH_MQ, body))
    assert response.code == Response.SUCCESS
    return LockBatchResponse.decode(response.body).locked


def release(broker: Assembly, client_id: str) -> None:
    body = LockBatchRequest(client_id=client_id, consumer_group="g", mq_set=[QUEUE])
    response = unlock(broker.for_members, FakeLink(), ask(Request.UNLOCK_BATCH_MQ, body))
    assert (response.code, response.body) == (Response.SUCCESS, b"")


@pytest.mark.mission("CG-09")
def test_of_two_clients_one_holds_a_queue_until_it_is_released_or_not_renewed_for_a_minute() -> None:
    broker = Assembly()
    assert try_lock(broker, "one") == [QUEUE]
    assert try_lock(broker, "two") == []

    release(broker, "two")
    assert try_lock(broker, "two") == [], "only the holder can release"
    release(broker, "one")
    assert try_lock(broker, "two") == [QUEUE]

    for _ in range(5):  # renewed every 20 s, as clients do
        broker.clock.advance(20)
        assert try_lock(broker, "two") == [QUEUE]
        assert try_lock(broker, "one") == []
    broker.clock.advance(60)
    assert try_lock(broker, "one") == []
    broker.clock.advance(0.001)
    assert try_lock(broker, "one") == [QUEUE]


def test_a_consumer_that_stops_while_it_asks_for_a_lock_does_not_keep_the_queue_from_the_others() -> None:
    """Its rebalance may still run when it has given back its locks: the lock it then takes would live for a minute."""
    broker = Assembly()
    one, two = FakeLink("one:1"), FakeLink("two:2")
    beat(broker, one, "one", consumer())
    beat(broker, two, "two", consumer())
    release(broker, "one")
    assert try_lock(broker, "one") == [QUEUE], "asked for before it unregistered"
    unregister(broker.for_members, one, ask(Request.UNREGISTER_CLIENT, clientID="one", consumerGroup="g"))
    assert try_lock(broker, "one") == [], "asked for after it unregistered"
    assert try_lock(broker, "two") == [QUEUE]

    release(broker, "two")
    beat(broker, one, "one", consumer())
    assert try_lock(broker, "one") == [QUEUE], "it has joined again"


def test_a_consumer_whose_connection_is_cut_keeps_its_queues_until_they_expire() -> None:
    broker = Assembly()
    one = FakeLink("one:1")
    beat(broker, one, "one", consumer())
    assert try_lock(broker, "one") == [QUEUE]
    connection_closed(broker.for_members, one)
    assert try_lock(broker, "two") == []


def test_recorded_requests_get_the_recorded_answers() -> None:
    broker = Assembly()
    for recorded in golden_requests(Request.LOCK_BATCH_MQ):
        asked = LockBatchRequest.decode(recorded.body).mq_set
        body = lock(broker.for_members, FakeLink(), recorded).body
        assert LockBatchResponse.decode(body).locked == asked
        assert body.startswith(b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":')
    for recorded in golden_requests(Request.UNLOCK_BATCH_MQ):
        assert unlock(broker.for_members, FakeLink(), recorded).code == Response.SUCCESS
    assert broker.queue_locks.held() == 0


def test_a_request_without_group_or_client_is_refused() -> None:
    for body in (LockBatchRequest(client_id="one"), LockBatchRequest(consumer_group="g")):
        with pytest.raises(RequestError) as caught:
            lock(Assembly().for_members, FakeLink(), ask(Request.LOCK_BATCH_MQ, body))
        assert caught.value.code == Response.INVALID_PARAMETER


def test_every_request_of_the_family_has_an_entry() -> None:
    assert set(HANDLERS) == {41, 42}
