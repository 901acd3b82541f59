"""Checks the helper that runs coroutines as tests."""

import asyncio

import pytest

from tests.support.aio import run, settle


def test_the_result_of_the_coroutine_comes_back() -> None:
    async def main() -> int:
        await asyncio.sleep(0)
        return 7

    assert run(main()) == 7


def test_a_coroutine_that_hangs_is_ended() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match=r"did not finish within 0\.01 s"):
        run(main(), timeout_s=0.01)


def test_a_timeout_of_the_code_under_test_stays_what_it_is() -> None:
    async def main() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        run(main())


def test_an_error_in_a_callback_fails_the_test() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run(main())


def test_settling_waits_for_what_goes_through_sockets_threads_and_callbacks() -> None:
    async def main() -> list[str]:
        came: list[str] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while byte := await reader.read(1):
                writer.write(await asyncio.to_thread(bytes, byte))
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())

        async def ask() -> None:
            for _ in range(4):
                writer.write(b"x")
                await reader.readexactly(1)
            came.append("all")

        asking = asyncio.ensure_future(ask())
        await settle()
        assert asking.done()
        writer.close()
        server.close()
        await settle()
        return came

    assert run(main()) == ["all"]
