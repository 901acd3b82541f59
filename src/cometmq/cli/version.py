"""`cometmq version`: one line that says which build is running; on stderr, why it is not the faster one."""

import sys

from cometmq.build_info import build_info


def main(argv: list[str]) -> int:
    if argv:
        print(f"cometmq version: takes no arguments, got {argv[0]!r}", file=sys.stderr)
        return 2
    build = build_info()
    print(build)
    if build.advice:
        print(build.advice, file=sys.stderr)
    return 0
