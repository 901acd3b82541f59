"""`cometmq rtt`: how long a request takes to each server and back, without anything being stored."""

import argparse
import time
from typing import Any, Final

from cometmq.cli.shared import output
from cometmq.cli.shared.arguments import Verb, count, run_verb
from cometmq.cli.shared.connect import administration
from cometmq.cli.shared.failures import EXIT_UNREACHABLE
from cometmq.errors import BrokerError, CallError


def main(argv: list[str]) -> int:
    return run_verb(RTT, argv)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--count", type=count, default=10, metavar="N", help="requests to each; default 10")


async def _rtt(options: argparse.Namespace) -> int:
    from cometmq.client.admin import Admin
    from cometmq.wire.codes import Request

    async def measure(admin: Admin, kind: str, address: str, code: int) -> dict[str, Any]:
        took_ms: list[float] = []
        row: dict[str, Any] = {"kind": kind, "address": address}
        try:
            await admin.ask(address, code)  # the connection is not part of it
            for _ in range(options.count):
                began_s = time.perf_counter()
                await admin.ask(address, code)
                took_ms.append((time.perf_counter() - began_s) * 1000)
        except (CallError, BrokerError) as error:
            return {**row, "error": str(error)}
        took_ms.sort()
        figures = {"min_ms": took_ms[0], "median_ms": took_ms[len(took_ms) // 2], "max_ms": took_ms[-1]}
        return {**row, **{name: round(value, 3) for name, value in figures.items()}, "error": None}

    async with administration(options, brokers=False) as admin:
        found = [
            await measure(admin, "name server", address, Request.GET_BROKER_CLUSTER_INFO)
            for address in admin.name_servers()
        ]
        for member in await admin.brokers():
            found.append(await measure(admin, member.role, member.address, Request.GET_BROKER_RUNTIME_INFO))
    output.rows(options.output, found, ("kind", "address", "min_ms", "median_ms", "max_ms", "error"))
    return EXIT_UNREACHABLE if any(row["error"] for row in found) else 0


RTT: Final = Verb("rtt", "How long a request takes to each server and back.", _rtt, _arguments)
