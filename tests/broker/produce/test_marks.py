"""What every message and answer of this broker carries, before and after a change of settings."""

from dataclasses import replace

from cometmq.broker.config import BrokerConfig
from cometmq.broker.produce.marks import Marks
from cometmq.wire.record.properties import decode_text


def test_marks_follow_the_settings_when_they_are_told_to() -> None:
    config = [BrokerConfig(region_id="north", cluster_name="c", trace_on=False)]
    marks = Marks(lambda: config[0])
    assert marks.answer_ext == {"TRACE_ON": "false", "MSG_REGION": "north"}
    assert decode_text(marks.properties) == {"MSG_REGION": "north", "TRACE_ON": "false", "CLUSTER": "c"}
    config[0] = replace(config[0], region_id="south", trace_on=True)
    assert marks.answer_ext["MSG_REGION"] == "north"
    marks.follow_settings()
    assert marks.answer_ext == {"TRACE_ON": "true", "MSG_REGION": "south"}
    assert marks.properties.endswith("\x02")
