"""docs/journey.md says where things are and what is bounded; both must be so."""

import re
from pathlib import Path

from cometmq.broker.admission import FAMILIES
from cometmq.broker.config import BrokerConfig
from cometmq.config import NameServerConfig
from cometmq.settings import settings_of

DOCS = Path(__file__).resolve().parents[1] / "docs"
JOURNEY = (DOCS / "journey.md").read_text(encoding="utf-8")


def keys(kind: type) -> dict[str, str]:
    return {attribute: key for key, (attribute, _) in settings_of(kind).items()}


def test_every_link_of_the_journey_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)]+)\)", JOURNEY)
    assert len(links) > 15
    assert [link for link in links if not (DOCS / link).exists()] == []


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
