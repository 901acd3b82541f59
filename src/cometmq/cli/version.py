"""`cometmq version`: one line that says which build is running."""

import sys

from cometmq.build_info import build_info


def main(argv: list[str]) -> int:
    if argv:
        print(f"cometmq version: takes no arguments, got {argv[0]!r}", file=sys.stderr)
        return 2
    print(build_info())
    return 0
