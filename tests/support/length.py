"""How long the tests are that can be of any length: random inputs, kills, seeds, rounds.

    short    make test      each such test once, with enough to notice that something broke
    long     make verify    what a change should pass before it lands
    soak     make soak      hours, before a release

COMETMQ_LENGTH says which; many tests have a variable of their own for one more exact number. Mark tests of this kind
`repeated`; `make verify` runs them again at length. Mark `long` what only `make verify` runs at all.
"""

import os
from typing import Final, Literal, TypeVar, cast, get_args

Length = Literal["short", "long", "soak"]
T = TypeVar("T")


def read_length(environment: dict[str, str]) -> Length:
    found = environment.get("COMETMQ_LENGTH", "short")
    if found not in get_args(Length):
        raise ValueError(f"COMETMQ_LENGTH={found} is none of {', '.join(get_args(Length))}")
    return cast("Length", found)


LENGTH: Final = read_length(dict(os.environ))
SOAK: Final = LENGTH == "soak"


def by_length(short: T, long: T, soak: T) -> T:
    return {"short": short, "long": long, "soak": soak}[LENGTH]


def count(variable: str, short: int, long: int, soak: int) -> int:
    """The number in this variable of the environment, else the one for this length."""
    return int(os.environ.get(variable, by_length(short, long, soak)))
