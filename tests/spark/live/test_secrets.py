"""Keys among the options of the formats: they sign what is asked, and Spark shows them nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.client.cluster.credentials import Credentials
from cometmq.errors import ConfigError
from cometmq.spark import pipelines
from cometmq.spark.live.remote import Connection
from cometmq.spark.live.source import source_options
from cometmq.testing import SyncCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MARK = "marker-of-root"
SECURED: dict[str, str | int | float | bool] = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": json.dumps({"username": "root", "password": MARK}),
}


def connection(**given: str) -> Connection:
    return Connection.of(source_options({"namesrvAddr": "h:1", "subscribe": "T", **given}))


@pytest.mark.mission("AC-21")
def test_keys_come_from_options_files_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text(f"{MARK}\n")
    for name in ("COMETMQ_ACCESS_KEY", "COMETMQ_SECRET_KEY", "COMETMQ_SECURITY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert connection().credentials is None
    given = connection(accessKey="root", secretKey=f"@{tmp_path}/secret", securityToken="token", tlsKeyPassword=MARK)
    assert given.credentials == Credentials("root", MARK, "token")
    assert given.client_options().secret_key == MARK
    shown = repr(given) + repr(connection(tls="true", tlsKeyPassword=MARK, accessKey="root", secretKey=MARK))
    assert MARK not in shown
    with pytest.raises(ConfigError, match="option secretKey: cannot read"):
        connection(accessKey="root", secretKey=f"@{tmp_path}/none")
    monkeypatch.setenv("COMETMQ_ACCESS_KEY", "env")
    monkeypatch.setenv("COMETMQ_SECRET_KEY", f"@{tmp_path}/secret")
    assert connection().credentials == Credentials("env", MARK)


@pytest.mark.mission("AC-21")
def test_no_secret_is_in_plans_logs_events_or_errors(tmp_path: Path) -> None:
    options = {"accessKey": "root", "secretKey": MARK, "securityToken": f"{MARK}-2", "tlsKeyPassword": f"{MARK}-3"}
    with SyncCluster(settings=SECURED) as cluster:
        with cluster.client(access_key="root", secret_key=MARK) as client, client.admin() as admin:
            for topic in ("Sent", "Streamed"):
                admin.create_topic(topic, queues=1)
        ran = subprocess.run(
            [sys.executable, "-m", "tests.spark.live.secrets_program", str(tmp_path), cluster.namesrv],
            env={**os.environ, "CLUSTER_OPTIONS": json.dumps(options)}, capture_output=True, check=False, timeout=300,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr.decode()
        with cluster.client(access_key="root", secret_key=MARK) as client, client.admin() as admin:
            (queue,) = admin.topic_queues("Streamed")
            assert [message.body for message in admin.read(queue)] == [b"1"]
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (told,) = [text.decode() for path, text in files.items() if path.name == "told"]
    for said in ("BatchScan cometmq", "check signature failed", "NotThere", "there is no option wrong"):
        assert said in told
    (log,) = [text for path, text in files.items() if path.name == "driver.log"]
    assert b"DEBUG" in log
    assert any(b"SparkListenerSQLExecutionStart" in text for path, text in files.items() if "events" in path.parts)
    leaking = [str(path) for path, text in files.items() if MARK.encode() in text]
    assert not leaking
    assert MARK.encode() not in ran.stdout + ran.stderr


@pytest.mark.mission("AC-21")
def test_pipelines_sign_what_they_read_and_write(spark: SparkSession, tmp_path: Path) -> None:
    keys = {"accessKey": "root", "secretKey": MARK}
    with SyncCluster(settings=SECURED) as cluster:
        with cluster.client(access_key="root", secret_key=MARK) as client, client.admin() as admin:
            for topic in ("orders", "totals"):
                admin.create_topic(topic, queues=1)
            with client.producer("pg") as producer:
                producer.send("orders", b'{"n": 1}', keys=["k1"])
        where: dict[str, Any] = {"namesrv": cluster.namesrv, **keys}
        told, _ = pipelines.schema(spark, topics="orders", out=str(tmp_path / "schema.json"), **where)
        assert told.figures["messages"] == 1
        _, hits = pipelines.search(spark, live=True, topics="orders", key="k1", **where)
        assert len(hits) == 1
        known: dict[str, Any] = {"schema": str(tmp_path / "schema.json"), "checkpoint": str(tmp_path / "checkpoint")}
        pipelines.sql(spark, sql="SELECT n FROM orders", topics="orders", to="totals", batch=True, **known, **where)
        with cluster.client(access_key="root", secret_key=MARK) as client, client.admin() as admin:
            (queue,) = admin.topic_queues("totals")
            assert len(list(admin.read(queue))) == 1
        with pytest.raises(Exception, match="username cannot be null"):
            pipelines.search(spark, live=True, topics="orders", key="k1", namesrv=cluster.namesrv)
