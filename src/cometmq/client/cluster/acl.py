"""What every request of a client with a namespace carries besides its own fields."""

from cometmq.wire.command import Command


class NamespaceMark:
    """A namespace of the second kind: names stay, requests say where they belong. A hook of net.Client."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def before(self, peer: str, request: Command) -> None:
        request.ext["nsd"] = "true"
        request.ext["ns"] = self._namespace

    def after(self, peer: str, request: Command, response: Command) -> None:
        return None
