"""Whether a message that asks for a timer gets one.

no number                           refused
in the past                         stored at once; one that takes another back is refused
beyond timerMaxDelaySec             refused
its slot is crowded                 refused, now and then or always: timerCongestNumEachSlot
properties too long                 refused, because more are added until it is delivered
otherwise                           becomes a message of the timer topic
"""

import random

from cometmq.broker.delayed import timer_messages
from cometmq.broker.delayed.timer_messages import PROPERTIES_RESERVE_BYTES
from cometmq.store.log.append import AppendRequest
from cometmq.store.options import StoreOptions
from cometmq.store.results import PutResult, PutStatus
from cometmq.store.timers.files import TimerFiles
from cometmq.wire.record.properties import PROPERTIES_BYTES_MAX, Property, find


def admit(request: AppendRequest, files: TimerFiles, options: StoreOptions, now_ms: int) -> PutResult | None:
    """Turn the message into one for the timer topic, or leave it as it is; or say why it cannot be stored."""
    try:
        wanted_ms = timer_messages.wanted_ms(request.properties, now_ms)
    except ValueError as error:
        return _illegal(str(error))
    if wanted_ms <= now_ms:
        takes_back = find(request.properties, Property.TIMER_DEL_UNIQKEY) is not None
        return _illegal("the message to take back is due already") if takes_back else None
    delay_ms = wanted_ms - now_ms
    if delay_ms > options.timer_delay_s_max * 1000:
        return _illegal(f"a delay of {delay_ms // 1000} s is above timerMaxDelaySec={options.timer_delay_s_max}")
    out_ms = timer_messages.slot_ms(wanted_ms, files.precision_ms)
    waiting = files.count_at(out_ms)
    if is_crowded(waiting, options.timer_slot_count_max):
        return PutResult(
            PutStatus.WHEEL_TIMER_FLOW_CONTROL,
            remark=f"{waiting} messages are due at the same moment, above "
            f"timerCongestNumEachSlot={options.timer_slot_count_max}: choose another time",
        )
    timer_messages.keep(request, out_ms)
    limit_bytes = PROPERTIES_BYTES_MAX - PROPERTIES_RESERVE_BYTES
    properties_bytes = len(request.properties.encode("utf-8", "surrogatepass"))
    if properties_bytes > limit_bytes:
        return PutResult(
            PutStatus.PROPERTIES_SIZE_EXCEEDED,
            remark=f"properties of {properties_bytes} bytes, the limit for a timer message is {limit_bytes}",
        )
    return None


def is_crowded(waiting: int, limit: int) -> bool:
    """The more wait above the limit, the more likely; with twice the limit for sure."""
    return waiting > limit and random.random() * limit < waiting - limit  # noqa: S311 - spreads load, keeps no secret


def _illegal(remark: str) -> PutResult:
    return PutResult(PutStatus.WHEEL_TIMER_MESSAGE_ILLEGAL, remark=remark)
