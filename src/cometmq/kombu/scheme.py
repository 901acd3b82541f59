"""Makes `cometmq://` a scheme of Kombu, by being loaded.

Kombu has no place where a package can add a transport, but it loads what is installed as a serializer
(`kombu.serializers`). So this is one: JSON by another name. The transport itself is imported when a URL names it.
"""

from kombu.transport import TRANSPORT_ALIASES
from kombu.utils.json import dumps, loads

TRANSPORT_ALIASES.setdefault("cometmq", "cometmq.kombu.transport:Transport")

serializer = (dumps, loads, "application/x-cometmq-json", "utf-8")
