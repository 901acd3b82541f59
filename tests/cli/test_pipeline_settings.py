"""Settings of pipelines: shown, completed, in either spelling, and not misspelt; without Spark."""

import inspect

import pytest

from cometmq.cli.completion import complete
from cometmq.cli.pipeline import PIPELINES
from cometmq.cli.shared.pipeline_settings import canonical, describe
from cometmq.errors import ConfigError
from cometmq.spark.options import Options
from tests.cli.conftest import Comet


@pytest.mark.parametrize("name", PIPELINES)
def test_every_setting_of_a_pipeline_is_shown_with_type_and_default(lonely: Comet, name: str) -> None:
    text = lonely.good("pipeline", "run", name, "--help").out
    from cometmq.spark import pipelines

    parameters = inspect.signature(getattr(pipelines, name)).parameters.values()
    keys = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
    assert [one.name for one in describe(name).settings] == [one.name for one in keys]
    for one in keys:
        (line,) = [line for line in text.splitlines() if line.strip().startswith(f"{one.name}=")]
        if isinstance(one.default, int | str) and not isinstance(one.default, bool) and one.default:
            assert line.endswith(f"default: {one.default}")
        if one.default is one.empty and one.name != "namesrv":
            assert line.endswith("must be given")


@pytest.mark.mission("DU-09")
def test_both_spellings_are_taken_and_a_misspelt_name_is_not() -> None:
    assert canonical("archive", "rowsPerBatch") == canonical("archive", "rows_per_batch") == "rows_per_batch"
    assert canonical("archive", "readMode") == "readMode"
    with pytest.raises(ConfigError, match="pipeline archive has no rows_per_bach: do you mean rows_per_batch"):
        canonical("archive", "rows_per_bach")
    assert Options({"max_in_flight": "3"}, {"maxInFlight": "1"}).number("maxInFlight") == 3


def test_a_misspelt_pipeline_is_answered_with_the_one_that_was_meant(lonely: Comet) -> None:
    ran = lonely("pipeline", "run", "archiv", "topics=a")
    assert (ran.code, ran.err) == (2, "cometmq pipeline run: there is no pipeline archiv: do you mean archive?\n")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["pipeline", "run", "arc"], ["archive"]),
        (["pipeline", "run", "archive", "ro"], ["root=", "rows_per_batch="]),
        (["pipeline", "run", "archive", "root=/x", "cod"], ["codec="]),
        (["config", "set", "fileReserved"], ["fileReservedTime="]),
        (["config", "get", "storePathRoot"], ["storePathRootDir"]),
        (["config", "set", "storePathRoot"], []),
    ],
)
def test_names_are_completed(words: list[str], found: list[str]) -> None:
    assert complete(words) == found
