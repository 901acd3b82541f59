"""Which messages of a topic a consumer wants.

    "*" or ""          all
    "created || paid"  by tag: brokers compare hashes of tags, so the client compares the tags themselves again
    sql="amount > 10"  by an expression over properties; brokers alone decide

The data travels in heartbeats; pulls name only its version, the time at which it was last changed.
"""

from typing import Final

from cometmq.client.cluster.queue_client import ALL
from cometmq.errors import ConfigError
from cometmq.wire.bodies import SubscriptionData
from cometmq.wire.hashing import java_string_hash
from cometmq.wire.record import properties as wire_properties
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.properties import Property

SQL92: Final = "SQL92"


def subscribe(topic: str, tags: str | None = None, sql: str | None = None, version: int = 0) -> SubscriptionData:
    """`topic` is the name on the wire; `version` a wall time in ms."""
    if sql is not None:
        if tags is not None:
            raise ConfigError(f"topic {topic} is filtered by tag {tags!r} and by sql {sql!r}: give one")
        if not sql.strip():
            raise ConfigError(f"the sql filter of topic {topic} is blank")
        return SubscriptionData(topic=topic, sub_string=sql, expression_type=SQL92, sub_version=version)
    names = [name for part in (tags or ALL).split("||") if (name := part.strip())]
    if not names or names == [ALL]:
        return SubscriptionData(topic=topic, sub_string=ALL, sub_version=version)
    return SubscriptionData(
        topic=topic,
        sub_string=(tags or "").strip(),
        tags_set=set(names),
        code_set={java_string_hash(name) for name in names},
        sub_version=version,
    )


def matches(subscription: SubscriptionData, message: StoredMessage) -> bool:
    """Whether a message that passed the broker's filter passes the exact one, too."""
    if not subscription.tags_set:
        return True
    return wire_properties.decode(message.properties).get(Property.TAGS) in subscription.tags_set
