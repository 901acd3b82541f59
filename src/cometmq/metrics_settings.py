"""What the settings about metrics say, checked before anything is opened.

metricsExporterType   DISABLE, OTLP_GRPC, PROM, LOG, or their numbers 0 to 3
metricsLabel          k:v,k:v       a pair that is not two is skipped with a warning, as in RocketMQ
"""

import logging
import re
from typing import Final

from cometmq.config import SeenConfig
from cometmq.settings import SettingError

logger = logging.getLogger(__name__)

DISABLE: Final = "DISABLE"
OTLP: Final = "OTLP_GRPC"
PROM: Final = "PROM"
LOG: Final = "LOG"
TYPES: Final = (DISABLE, OTLP, PROM, LOG)

_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,99}")


def exporter_type(config: SeenConfig) -> str:
    text = config.metrics_exporter_type
    if text.isascii() and text.isdigit() and int(text) < len(TYPES):
        return TYPES[int(text)]
    if text not in TYPES:
        raise SettingError(f"metricsExporterType={text[:40]} is not one of {', '.join(TYPES)}, nor 0 to 3")
    return text


def own_labels(config: SeenConfig) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in filter(None, (pair.strip() for pair in config.metrics_label.split(","))):
        name, colon, value = pair.partition(":")
        if not colon or ":" in value or not _LABEL.fullmatch(name):
            logger.warning("skip label metricsLabel=%r reason=not name:value", pair[:80])
            continue
        labels[name] = value
    return labels
