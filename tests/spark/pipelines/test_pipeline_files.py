"""Every pipeline that is listed can be called, and written as a file."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from cometmq.cli import pipeline
from cometmq.cli.shared.arguments import noun_parser
from cometmq.errors import ConfigError
from cometmq.spark import pipelines
from cometmq.spark.pipelines.steps import only_connection

FILES = {
    "rebuild": 'store = "/s"\nindex = false\nqueue_file_units = 300000\n',
    "search": 'root = "/lake"\nkey = "4711"\nlive = true\ntopics = "orders"\nlimit = 5\n',
    "schema": 'topics = "orders"\nout = "schema.json"\nsample = 0.5\nby_day = true\n',
    "sql": 'topics = "o"\nsql = "SELECT id FROM o"\ncheckpoint = "/c"\nto = "x"\nonce = false\nsendRetries = 5\n',
    "window": 'topic = "orders"\nto = "x"\ncheckpoint = "/c"\nsize = "1 minute"\ninterval_s = 2.5\nstrict = false\n',
    "report": 'to = "/r"\ntopics = "orders"\n',
}


@pytest.mark.parametrize("name", sorted(pipeline.PIPELINES))
def test_a_listed_pipeline_is_a_function_of_keywords(name: str) -> None:
    first, *others = inspect.signature(getattr(pipelines, name)).parameters.values()
    assert first.name == "spark"
    assert {one.kind for one in others} <= {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}


@pytest.mark.parametrize("name", sorted(FILES))
def test_settings_of_a_file_become_what_the_pipeline_takes(name: str, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(f'pipeline = "{name}"\n{FILES[name]}')
    options = noun_parser("pipeline", "", pipeline.VERBS).parse_args(["run", str(path), "--namesrv", "h:1"])
    found, settings = pipeline._settings(options)
    assert found == name
    arguments = pipeline._arguments(name, getattr(pipelines, name), settings, options)
    bound = inspect.signature(getattr(pipelines, name)).bind(None, **arguments)
    assert ("namesrv" in bound.arguments) == (name != "rebuild")
    told = {key: value for key, value in bound.arguments.items() if key in settings and key != "namesrv"}
    assert told == {key: settings[key] for key in told}


@pytest.mark.parametrize("name", sorted(set(FILES) - {"audit", "rebuild"}))
def test_keys_and_tls_of_the_command_go_to_the_cluster(name: str, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(f'pipeline = "{name}"\n{FILES[name]}')
    flags = ["--namesrv", "h:1", "--access-key", "ak", "--secret-key", "sk", "--tls-ca", "ca.pem", "--tls-insecure"]
    options = noun_parser("pipeline", "", pipeline.VERBS).parse_args(["run", str(path), *flags])
    _, settings = pipeline._settings(options)
    arguments = pipeline._arguments(name, getattr(pipelines, name), settings, options)
    wanted = {"accessKey": "ak", "secretKey": "sk", "tls": "true", "tlsTrust": "ca.pem", "tlsVerify": "false"}
    assert {key: arguments[key] for key in wanted} == wanted


def test_a_misspelt_setting_does_not_pass_for_an_option_of_the_cluster() -> None:
    assert only_connection("schema", {"secretKey": "sk", "TLS": "true"}) == {"secretKey": "sk", "TLS": "true"}
    with pytest.raises(ConfigError, match="pipeline schema has no sampel"):
        only_connection("schema", {"sampel": "0.5"})
