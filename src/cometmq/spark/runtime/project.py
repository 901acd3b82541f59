"""A project of declarative pipelines (`spark-pipelines`) over the formats, as `cometmq pipeline init` writes it.

    DIR/spark-pipeline.yml             what belongs to it, and where it keeps checkpoints
        transformations/messages.py    topic -> table of its messages -> counts -> topic of counts
        transformations/latest.sql     a view in SQL on the same table
        conf/spark-defaults.conf       what the session needs; a second run above all
        conf/log4j2.properties         errors only
        run.sh                         finds Java, runs
        README.md

A second run must find the tables of the first, so tables are kept in a catalog on disk (Spark's own with Derby, no
server); with the catalog in memory that is the default, the second run fails. That is said in a file: of more than ten
`--conf` on the command line Spark 4.3 hands only the last ones to the session that a local run starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cometmq.errors import ConfigError
from cometmq.names import topic_fault

SPEC: Final = """\
name: {name}
storage: file://{folder}/storage
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.session.timeZone: UTC
  spark.sql.shuffle.partitions: "4"
"""

PYTHON: Final = '''\
"""Messages of {topic}: as a table, counted by tag, and the counts as messages of {target}."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame

NAMESRV = "{namesrv}"


@dp.table
def messages() -> DataFrame:
    """Every message once; a run reads what is new."""
    source = spark.readStream.format("cometmq").option("namesrvAddr", NAMESRV).option("subscribe", "{topic}")
    columns = "brokerName,queueId,queueOffset,tags,keys,body,storeTimestamp"
    return source.option("startingOffsets", "earliest").option("columns", columns).load()


@dp.materialized_view
def messages_by_tag() -> DataFrame:
    return spark.table("messages").groupBy("tags").count()


dp.create_sink("{target}_out", format="cometmq", options={{"namesrvAddr": NAMESRV, "topic": "{target}"}})


@dp.append_flow(target="{target}_out")
def announce() -> DataFrame:
    """One small message for each that came: its keys, with the tag kept."""
    seen = spark.readStream.table("messages")
    return seen.selectExpr("to_json(struct(keys, storeTimestamp)) AS body", "tags", "keys")
'''

SQL: Final = """\
-- The newest message of each tag.
CREATE MATERIALIZED VIEW latest_by_tag AS
SELECT tags, max(storeTimestamp) AS stored, max_by(keys, storeTimestamp) AS keys
FROM messages
GROUP BY tags
"""

CONF: Final = """\
# The catalog on disk is what makes a second run go on where the first stopped.
spark.sql.catalogImplementation   hive
spark.sql.warehouse.dir           {folder}/warehouse
spark.driver.extraJavaOptions     -Dderby.system.home={folder}/storage
# A local run needs no page of its own and is reached by nobody else.
spark.ui.enabled                  false
spark.ui.showConsoleProgress      false
spark.driver.bindAddress          127.0.0.1
spark.driver.host                 127.0.0.1
spark.connect.grpc.binding.address 127.0.0.1
"""

LOG: Final = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
# Spark takes the level of this one for all others.
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
# A run that ends asks once more for the session that it has just closed.
logger.closing.name = org.apache.spark.sql.connect.utils.ErrorUtils
logger.closing.level = off
"""

RUN: Final = """\
#!/bin/sh
# ./run.sh runs what is new; ./run.sh dry-run only checks; further arguments go to spark-pipelines.
set -e
cd "$(dirname "$0")"
PYSPARK_PYTHON="${{PYSPARK_PYTHON:-{python}}}"
JAVA_HOME="$("$PYSPARK_PYTHON" -m cometmq.spark.runtime.java)"
PATH="$(dirname "$PYSPARK_PYTHON"):$PATH"
SPARK_CONF_DIR="$PWD/conf"
export PYSPARK_PYTHON JAVA_HOME PATH SPARK_CONF_DIR
command="${{1:-run}}"
[ $# -eq 0 ] || shift
exec spark-pipelines "$command" --remote "${{SPARK_REMOTE:-local}}" "$@"
"""

README: Final = """\
# {name}

Tables and topics over `{topic}`, described in `transformations/`, run by Spark's declarative pipelines.

    ./run.sh            # reads what is new, brings every table up to date
    ./run.sh dry-run    # only checks that everything fits together

| name | what it is |
|---|---|
| `messages` | the messages of topic `{topic}`, each once |
| `messages_by_tag`, `latest_by_tag` | made anew from `messages` in every run |
| topic `{target}` | one message for each that came, at least once |

`storage/` has checkpoints and the catalog, `warehouse/` the tables as Parquet. Removing both begins anew. Spark's
settings are in `conf/`. A machine runs one project at a time: a local run listens on port 15002 of the loopback
address. It needs `pip install 'cometmq[spark]'`, and Java 17 or `cometmq[spark-jre]`.
"""


def write_project(folder: Path, *, namesrv: str, topic: str, target: str, python: str) -> list[Path]:
    """The files that were written. ConfigError if there is something in the folder already."""
    for name in (topic, target):
        fault = topic_fault(name)
        if fault is not None:
            raise ConfigError(fault)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty: name a new directory")
    words = {
        "name": folder.resolve().name,
        "folder": str(folder.resolve()),
        "namesrv": namesrv,
        "topic": topic,
        "target": target,
        "python": python,
    }
    texts = {
        "spark-pipeline.yml": SPEC,
        "transformations/messages.py": PYTHON,
        "transformations/latest.sql": SQL,
        "conf/spark-defaults.conf": CONF,
        "conf/log4j2.properties": LOG,
        "run.sh": RUN,
        "README.md": README,
    }
    written = []
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(**words))
        written.append(path)
    (folder / "storage").mkdir()
    (folder / "run.sh").chmod(0o755)
    return written
