"""A process that dies at a named point: python -m tests.spark.tables.victim run|compact|expire FOLDER [NAMESRV]."""

from __future__ import annotations

import sys
from pathlib import Path

from cometmq.spark.tables.catalog import Place
from cometmq.spark.tables.upkeep import compact, expire


def main(job: str, folder: str, namesrv: str = "") -> None:
    place = Place.of(f"sql:{Path(folder) / 'catalog.db'}", None)
    if job == "run":
        from cometmq.spark import session
        from cometmq.spark.tables.run import run

        java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        conf = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": java}
        run(
            session("victim", master="local[2]", conf=conf), place=place, namesrv=namesrv, rows_per_batch=20,
            commit_every_s=0, maintain_every_s=0,
        )  # fmt: skip
    elif job == "compact":
        compact(place, today=True)
    else:
        expire(place, keep_s=0, stray_s=0)


if __name__ == "__main__":
    main(*sys.argv[1:])
