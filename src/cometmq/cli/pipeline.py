"""`cometmq pipeline`: finished Spark jobs. `run NAME key=value ...`, or `run FILE.toml` with the same as a file:

    pipeline = "archive"
    topics = "orders"
    root = "/lake"

Spark runs in this process (`--master` for a cluster). `run NAME --help` shows the settings of a pipeline.
"""

import argparse
import difflib
import inspect
import sys
import tomllib
import types
import typing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from cometmq.cli.context import Target, resolve
from cometmq.cli.shared import output, pipeline_settings
from cometmq.cli.shared.arguments import Verb, run_noun
from cometmq.errors import ConfigError

PIPELINES: Final = {
    "archive": "topics to a Parquet archive, each message once",
    "audit": "look through a store directory for damage, holes and wrong queues",
    "dedupe": "topics without what was sent twice, to a topic or an archive",
    "dlq": "dead letters by cause, and back to their topics, each once",
    "mirror": "topics to another cluster, each message once, with groups carried over",
    "rebuild": "consume queues and index of a store directory, from its log",
    "replay": "messages of an archive back to a topic, each once",
    "report": "lag, latency and traces as tables, charts and one page",
    "schema": "what the JSON bodies of topics look like, and how that has changed",
    "search": "messages by key, tag, id, time or text, in archive, stores and cluster",
    "sql": "from topics to a topic by a SQL text, over JSON bodies",
    "window": "aggregates of a topic by time and group, to a topic",
}
# Rows of these say that something is wrong; rows of others are what was asked for.
FINDERS: Final = ("audit",)
EXIT_FINDINGS: Final = 1


def main(argv: list[str]) -> int:
    if argv[:1] == ["run"] and len(argv) > 1 and argv[1] in PIPELINES and {"-h", "--help"} & set(argv[2:]):
        print(pipeline_settings.help_text(argv[1]))
        return 0
    return run_noun("pipeline", "Spark jobs over topics, stores and archives.", VERBS, argv)


def _list(options: argparse.Namespace) -> None:
    rows = [{"name": name, "purpose": purpose} for name, purpose in PIPELINES.items()]
    output.rows(options.output, rows, ("name", "purpose"))


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME|FILE", help="a pipeline (see list), or a TOML file that names one")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="settings of the pipeline")
    parser.add_argument("--master", metavar="URL", help="where Spark runs; default: in this process, on all cores")


def _run(options: argparse.Namespace) -> int:
    name, settings = _settings(options)
    if name not in PIPELINES:
        near = difflib.get_close_matches(name, PIPELINES, 1)
        hint = f": do you mean {near[0]}?" if near else f"; there are {', '.join(PIPELINES)}"
        raise ConfigError(f"there is no pipeline {name}{hint}")
    settings = {pipeline_settings.canonical(name, key): value for key, value in settings.items()}
    try:
        from cometmq.spark import pipelines, session
    except ImportError as error:
        raise ConfigError(f"Spark is not installed ({error.name}): pip install 'cometmq[spark]'") from None
    job = getattr(pipelines, name)
    arguments = _arguments(name, job, settings, options)
    print(f"pipeline {name}: starting Spark", file=sys.stderr)
    spark = session(f"cometmq-{name}", master=options.master)
    try:
        result = job(spark, **arguments)
    finally:
        spark.stop()
    summary, findings = result if isinstance(result, tuple) else (result, [])
    if options.output in ("table", "wide"):
        for finding in findings:
            print("\t".join(str(value) for value in asdict(finding).values()))
        print(summary, file=sys.stderr)
    else:
        told = [asdict(one) for one in findings]
        output.record(options.output, {"pipeline": name, **summary.figures, **({"found": told} if told else {})})
    return EXIT_FINDINGS if findings and name in FINDERS else 0


def _settings(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    name, found = options.name, {}
    if name.endswith(".toml"):
        try:
            found = tomllib.loads(Path(name).read_text())
        except OSError as error:
            raise ConfigError(f"cannot read {name}: {error.strerror}") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{name} is no TOML: {error}") from None
        if not isinstance(found.get("pipeline"), str):
            raise ConfigError(f'{name} does not say which pipeline: add pipeline = "archive"')
        name = str(found.pop("pipeline"))
    for text in options.settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{text} is no KEY=VALUE")
        found[key] = value
    return name, found


def _arguments(name: str, job: Any, settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """The settings as what the job takes: by the types of its parameters, with what is missing or unknown named."""
    parameters = inspect.signature(job).parameters
    types_of = typing.get_type_hints(job, localns={"SparkSession": object})
    known = [key for key, one in parameters.items() if one.kind is one.KEYWORD_ONLY]
    takes_more = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    if "namesrv" in known:
        target = resolve(options)
        settings.setdefault("namesrv", target.namesrv)
        if takes_more:
            settings = {**connection_options(target), **settings}
    missing = [key for key in known if parameters[key].default is inspect.Parameter.empty and key not in settings]
    if missing:
        needed = ", ".join(f"{key}=..." for key in missing)
        raise ConfigError(f"pipeline {name} needs {needed}; it takes {', '.join(known)}")
    unknown = [key for key in settings if key not in known]
    if unknown and not takes_more:
        raise ConfigError(f"pipeline {name} has no {', '.join(unknown)}; it takes {', '.join(known)}")
    return {key: _value(key, value, types_of.get(key, str)) for key, value in settings.items()}


def connection_options(target: Target) -> dict[str, str]:
    """Keys and TLS of the command line, environment or context, as options of the formats."""
    tls = target.tls
    found = {"accessKey": target.access_key, "secretKey": target.secret_key}
    if tls is not None:
        found |= {"tls": "true", "tlsTrust": tls.ca, "tlsName": tls.name, "tlsCert": tls.cert, "tlsKey": tls.key}
        found["tlsVerify"] = "false" if tls.insecure else None
    return {name: value for name, value in found.items() if value}


def _value(key: str, value: Any, wanted: Any) -> Any:
    if isinstance(wanted, types.UnionType):
        wanted = next(one for one in typing.get_args(wanted) if one is not type(None))
    if not isinstance(value, str):
        return str(value) if wanted is str else value
    if wanted is bool:
        if value.lower() not in ("true", "false"):
            raise ConfigError(f"{key}={value} is neither true nor false")
        return value.lower() == "true"
    if wanted in (int, float):
        try:
            return wanted(value)
        except ValueError:
            raise ConfigError(f"{key}={value} is no number") from None
    return value


def _init_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="a new directory")
    parser.add_argument("--topic", default="orders", help="the topic that it reads; default: orders")
    parser.add_argument("--target", help="the topic that it writes; default: TOPIC-seen")


def _init(options: argparse.Namespace) -> None:
    from cometmq.spark.runtime.project import write_project

    target = options.target or f"{options.topic}-seen"
    found = resolve(options)
    written = write_project(
        Path(options.directory), namesrv=found.namesrv, topic=options.topic, target=target, python=sys.executable
    )
    output.rows(options.output, [{"file": str(path)} for path in written], ("file",))
    print(f"next: {Path(options.directory) / 'run.sh'}", file=sys.stderr)


VERBS: Final = (
    Verb("list", "the pipelines that there are", _list, cluster=False),
    Verb(
        "init",
        "write a project of declarative pipelines (spark-pipelines) over a topic",
        _init,
        _init_arguments,
        example="cometmq pipeline init my-orders --topic orders",
    ),
    Verb(
        "run",
        "run a pipeline",
        _run,
        _run_arguments,
        example="cometmq pipeline run archive topics=orders root=/lake",
    ),
)
