"""The pytest plugin, as its users meet it: installed, unasked for, in their own tests."""

import subprocess
import sys

import pytest


def test_fixtures_give_clusters_that_work(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        shared = []

        @pytest.mark.cometmq(brokers=2, topics=["orders"])
        def test_fresh(cometmq_cluster):
            assert len(cometmq_cluster.brokers) == 2
            assert cometmq_cluster.messages("orders") == []

        def test_plain(cometmq_cluster):
            assert cometmq_cluster.broker.is_running

        def test_shared_one(cometmq_shared_cluster):
            shared.append(cometmq_shared_cluster)

        def test_shared_two(cometmq_shared_cluster):
            assert shared == [cometmq_shared_cluster]
        """
    )
    result = pytester.runpytest_subprocess("--strict-markers", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=4)


def test_the_plugin_loads_no_server_until_a_test_wants_one() -> None:
    code = "import sys, cometmq.testing.plugin; print([m for m in sys.modules if m.startswith('cometmq.')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "broker" not in out
    assert "asyncio" not in out
