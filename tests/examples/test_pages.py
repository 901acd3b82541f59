"""Programs in the client's documents run as they stand, and the reference is up to date."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.testing import SyncCluster

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("tutorial-client.md", "testing.md")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[SyncCluster]:
    with SyncCluster() as cluster:
        monkeypatch.setenv("COMETMQ_NAMESRV", cluster.namesrv)
        yield cluster


@pytest.mark.parametrize("page", PAGES)
def test_programs_of_a_page_run_one_after_the_other(page: str, cluster: SyncCluster) -> None:
    text = (ROOT / "docs" / page).read_text()
    programs = [code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "cometmq_cluster" not in code]
    assert len(programs) >= 4
    for number, program in enumerate(programs, 1):
        name = f"{page}_{number}"
        module = type(sys)(name)
        sys.modules[name] = module  # where annotations are looked up
        try:
            exec(compile(program, f"docs/{page}, program {number}", "exec"), vars(module))
        finally:
            del sys.modules[name]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other versions of Python write signatures differently")
def test_the_reference_is_up_to_date() -> None:
    path = ROOT / "scripts" / "api_reference.py"
    spec = importlib.util.spec_from_file_location("api_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run python scripts/api_reference.py"


def test_links_of_the_clients_pages_lead_somewhere() -> None:
    for page in (*PAGES, "api.md", "duplicates.md"):
        text = (ROOT / "docs" / page).read_text()
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert target.startswith("http") or (ROOT / "docs" / target).exists(), f"{page}: {target}"
