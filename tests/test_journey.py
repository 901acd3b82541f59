"""docs/journey.md says which way a message takes and what is bounded; both must be so."""

import re
from pathlib import Path

from cometmq.broker.admission import FAMILIES
from cometmq.broker.config import BrokerConfig
from cometmq.config import NameServerConfig
from cometmq.settings import settings_of
from scripts.shape import journey

DOCS = Path(__file__).resolve().parents[1] / "docs"
JOURNEY = (DOCS / "journey.md").read_text(encoding="utf-8")

# What other messages enter, or this one by the clock.
OFF_THE_WAY = {
    "broker/rooms.py",
    "broker/cold_pages.py",
    "broker/delayed/levels.py",
    "broker/tables/saving.py",
    "broker/transactions/half.py",
    "store/log/flush.py",
}
# Entered for a function or two, or for what goes on beside: registrations, heartbeats.
FOLDERS_IN_PASSING = {"spark/stores", "wire/bodies"}


def keys(kind: type) -> dict[str, str]:
    return {attribute: key for key, (attribute, _) in settings_of(kind).items()}


def test_every_link_of_the_journey_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)]+)\)", JOURNEY)
    assert len(links) > 15
    assert [link for link in links if not (DOCS / link).exists()] == []


async def test_the_journey_is_the_way_that_a_message_takes() -> None:
    walk, _, _ = JOURNEY.partition("## What is bounded")
    told = list(dict.fromkeys(re.findall(r"\(\.\./src/cometmq/([^)]+)\)", walk)))
    entered = await journey()
    way = [file for file in told if file not in OFF_THE_WAY]
    assert set(told) - set(way) == OFF_THE_WAY
    assert way == [file for file in entered if file in way]
    folders = {file.rpartition("/")[0] for file in entered}
    assert folders - {file.rpartition("/")[0] for file in told} <= FOLDERS_IN_PASSING


def test_the_journey_names_the_bound_and_the_wait_of_every_family() -> None:
    rows = dict(re.findall(r"^\| ([a-z ]+) \| (`.*) \|$", JOURNEY, re.MULTILINE))
    key_of = keys(BrokerConfig)
    stated = {name: re.findall(r"`(\w+)`", row) for name, row in rows.items()}
    assert stated == {
        name: [key_of[attribute] for attribute in (bound, wait) if attribute is not None]
        for name, (bound, wait) in FAMILIES.items()
    }


def test_the_journey_names_the_bounds_of_the_name_server() -> None:
    for attribute in ("route_requests_max", "default_requests_max"):
        assert f"`{keys(NameServerConfig)[attribute]}`" in JOURNEY
