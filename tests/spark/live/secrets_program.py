"""A Spark job with keys, as a program of its own: python -m tests.spark.live.secrets_program FOLDER NAMESRV.

Writes, reads and streams with the keys of its environment as options, and leaves below FOLDER what Spark says about it:
the driver's log at DEBUG, the event log, and `told`: plans, progress and errors.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path

from cometmq.spark import session

# It runs once, for seconds: compiling it well would take longer.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
LOGGING = """
rootLogger.level = debug
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {folder}/driver.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c %m%n%ex
"""


def main(folder: Path, namesrv: str) -> None:
    (folder / "logging.properties").write_text(LOGGING.format(folder=folder))
    (folder / "events").mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{folder}/events",
        "spark.eventLog.compress": "false",
        "spark.driver.extraJavaOptions": f"{QUICK} -Dlog4j2.configurationFile={folder}/logging.properties",
    }
    spark = session("secrets", master="local[1]", conf=conf)
    spark.sparkContext.setLogLevel("DEBUG")
    options = {"namesrvAddr": namesrv, **json.loads(os.environ["CLUSTER_OPTIONS"])}
    told = io.StringIO()
    rows = spark.createDataFrame([("1",)], "body STRING")
    rows.write.format("cometmq").options(**options, topic="Sent").mode("append").save()
    read = spark.read.format("cometmq").options(**options, subscribe="Sent").load()
    stream = spark.readStream.format("cometmq").options(**options, subscribe="Sent", startingOffsets="earliest").load()
    sink = stream.select("body").writeStream.format("cometmq").options(**options, topic="Streamed")
    query = sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    with contextlib.redirect_stdout(told):
        for mode in ("extended", "formatted"):
            read.explain(mode)
        query.explain(True)
        print(read, query.recentProgress)
        for wrong in ({"subscribe": "NotThere"}, {"subscribe": "Sent", "secretKey": "wrong"}, {"wrong": "1"}):
            try:
                spark.read.format("cometmq").options(**{**options, "retryMs": "0", **wrong}).load().collect()
            except Exception as error:
                print(repr(error), error)
    spark.stop()
    (folder / "told").write_text(told.getvalue())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
