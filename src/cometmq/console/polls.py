"""What may be watched: the first word of a key, who asks, and how often at most."""

from typing import Final

from cometmq.console.hub import Poll
from cometmq.console.views import cluster, groups, letters, overview, topics, waiting

POLLS: Final[dict[str, tuple[Poll, float]]] = {
    "overview": (overview.overview, 0.0),
    "topics": (topics.all_topics, 4.0),
    "figures": (topics.figures, 0.0),
    "topic": (topics.one_topic, 0.0),
    "groups": (groups.all_groups, 4.0),
    "lag": (groups.lag, 0.0),
    "group": (groups.one_group, 0.0),
    "letters": (letters.groups, 4.0),
    "waiting": (waiting.waiting, 4.0),
    "clients": (cluster.clients, 4.0),
    "topology": (cluster.topology, 4.0),
}
