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


def test_a_test_of_pytest_asyncio_gets_a_cluster_on_its_own_loop(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.asyncio
        @pytest.mark.cometmq(topics=["orders"])
        async def test_sends(cometmq_async_cluster):
            async with cometmq_async_cluster.client() as client, client.producer("pg") as producer:
                await producer.send("orders", b"hello")
            assert [one.body for one in await cometmq_async_cluster.messages("orders")] == [b"hello"]
        """
    )
    result = pytester.runpytest_subprocess("--strict-markers", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)


def test_a_test_of_anyio_gets_one_where_pytest_asyncio_is_not_installed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        conftest="""
        import pytest
        from cometmq.testing.plugin import cometmq_async_cluster as made

        cometmq_async_cluster = pytest.fixture(made.__wrapped__ if hasattr(made, "__wrapped__") else made)

        @pytest.fixture
        def anyio_backend():
            return "asyncio"
        """,
        test_it="""
        import pytest

        @pytest.mark.anyio
        async def test_runs(cometmq_async_cluster):
            assert cometmq_async_cluster.broker.is_running
        """,
    )
    result = pytester.runpytest_subprocess("--strict-markers", "-p", "no:cacheprovider", "-p", "no:asyncio")
    result.assert_outcomes(passed=1)


def test_the_plugin_loads_no_server_until_a_test_wants_one() -> None:
    code = "import sys, cometmq.testing.plugin; print([m for m in sys.modules if m.startswith('cometmq.')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "broker" not in out
    assert "asyncio" not in out
