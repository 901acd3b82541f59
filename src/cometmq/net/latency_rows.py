"""What meters counted, as rows of `rocketmq_rpc_latency_milliseconds`, for broker and name server."""

from collections.abc import Iterable, Iterator
from typing import Final

from cometmq.net.meter import BOUNDS_MS, ONEWAY, OVERFLOW, Meter
from cometmq.wire.codes import REQUEST_NAMES, RESPONSE_NAMES, Request

# Requests that wait for messages while they are kept.
PARKING: Final = frozenset(
    (
        Request.PULL_MESSAGE,
        Request.LITE_PULL_MESSAGE,
        Request.POP_MESSAGE,
        Request.NOTIFICATION,
        Request.PEEK_MESSAGE,
        Request.POLLING_INFO,
    )
)
BOUNDS: Final = tuple(float(bound) for bound in BOUNDS_MS)

# Labels, bounds, counts by bucket, sum.
LatencyRow = tuple[dict[str, str], tuple[float, ...], tuple[int, ...], float]


def latency_rows(meters: Iterable[Meter]) -> Iterator[LatencyRow]:
    sums: dict[tuple[int, int, int, int], tuple[list[int], int]] = {}
    for meter in meters:
        meter.fold()
        for code, count in list(meter.fast.items()):
            counts, _ = sums.setdefault((code, 0, 0, 0), ([0] * (len(BOUNDS) + 1), 0))
            counts[0] += count
        for key, row in list(meter.placed.items()):
            counts, sum_ms = sums.get(key) or ([0] * (len(BOUNDS) + 1), 0)
            sums[key] = ([have + more for have, more in zip(counts, row.counts, strict=True)], sum_ms + row.sum_ms)
    for key, (counts, sum_ms) in sums.items():
        yield _labels(key), BOUNDS, tuple(counts), float(sum_ms)


def _labels(key: tuple[int, int, int, int]) -> dict[str, str]:
    code, answer, kept, result = key
    is_parked = bool(kept) and code in PARKING
    return {
        "is_long_polling": "true" if is_parked else "false",
        "protocol_type": "remoting",
        "request_code": "other" if key == OVERFLOW else REQUEST_NAMES.get(code, str(code)).lower(),
        "response_code": "other" if key == OVERFLOW else RESPONSE_NAMES.get(answer, str(answer)).lower(),
        "result": "oneway" if result == ONEWAY else "success",
    }
