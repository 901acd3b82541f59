"""What this broker writes into every message that comes in here, and into every answer to a send."""

from collections.abc import Callable

from cometmq.broker.config import BrokerConfig


class Marks:
    """Region, trace switch and cluster. `follow_settings` when these may have changed."""

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self.answer_ext: dict[str, str] = {}
        self.properties: str = ""
        self._config = config
        self.follow_settings()

    def follow_settings(self) -> None:
        config = self._config()
        trace_on = "true" if config.trace_on else "false"
        self.answer_ext = {"TRACE_ON": trace_on, "MSG_REGION": config.region_id}
        self.properties = (
            f"MSG_REGION\x01{config.region_id}\x02TRACE_ON\x01{trace_on}\x02CLUSTER\x01{config.cluster_name}\x02"
        )
