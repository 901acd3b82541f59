"""`cometmq health`: ask a server of this host how it is, for health checks where there is no curl.

    cometmq health                            /healthz: is the process alive
    cometmq health --ready                    /readyz: does it keep its promises right now
    cometmq health --ready --wait 60          the same, until it does, for at most a minute
    cometmq health --url http://H:P           another place than 127.0.0.1:5557

What the server answers goes to stdout. Exit codes: 0 yes, 1 no, 2 wrong arguments, 3 nobody answers there.
"""

import argparse
import http.client
import sys
import time
from typing import Final
from urllib.parse import urlsplit

DEFAULT_URL: Final = "http://127.0.0.1:5557"
ANSWER_BYTES_MAX: Final = 65_536
AGAIN_S: Final = 0.2
EXIT_NO: Final = 1
EXIT_SILENT: Final = 3


def main(argv: list[str]) -> int:
    parser = _parser()
    try:
        options = parser.parse_args(argv)
        address = urlsplit(options.url)
        if address.scheme != "http" or address.hostname is None:
            parser.error(f"--url is {options.url!r}, it must be like {DEFAULT_URL}")
        port = address.port or 80
    except SystemExit as leaving:  # argparse has said what is wrong, or printed its help
        return int(leaving.code or 0)
    except ValueError as error:
        print(f"cometmq health: --url: {error}", file=sys.stderr)
        return 2
    path = "/startupz" if options.started else "/readyz" if options.ready else "/healthz"
    until_s = time.monotonic() + options.wait
    while True:
        code, text = _ask(address.hostname, port, path, options.timeout)
        if code == 0 or time.monotonic() >= until_s:
            print(text, file=sys.stderr if code == EXIT_SILENT else sys.stdout)
            return code
        time.sleep(AGAIN_S)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cometmq health",
        description="Ask a broker or name server whether it is alive, or keeps its promises (--ready).",
        epilog="exit codes: 0 yes, 1 no, 2 wrong arguments, 3 nobody answers there. The server needs "
        "metricsExporterType=PROM or healthPort.",
    )
    parser.add_argument("--url", default=DEFAULT_URL, help=f"where it serves metrics and health ({DEFAULT_URL})")
    parser.add_argument("--ready", action="store_true", help="ask whether it keeps its promises right now")
    parser.add_argument("--started", action="store_true", help="ask whether recovery is done")
    parser.add_argument("--wait", metavar="SECONDS", type=float, default=0.0, help="ask again for so long")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=3.0)
    return parser


def _ask(host: str, port: int, path: str, timeout_s: float) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        response = connection.getresponse()
        body = response.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        return EXIT_SILENT, (
            f"cometmq health: nobody answers at {host}:{port}{path}: {error}; "
            "start the server with metricsExporterType=PROM or healthPort=PORT"
        )
    finally:
        connection.close()
    return 0 if response.status == http.client.OK else EXIT_NO, body.decode("utf-8", "replace").rstrip("\n")
