"""The Huffman code of HPACK (RFC 7541, appendix B), read only: nothing here is written with it.

The code is canonical, so the lengths say all: `LENGTHS` has a letter for each of the 256 bytes and the end, a = 5 bits.
Text is read a byte at a time: (node of the tree, byte) -> (node, what became complete), worked out when first needed,
at most 65,536 pairs.
"""

from typing import Final

from cometmq.errors import WireError

LENGTHS: Final = (
    "isxxxxxxxtzxxzxxxxxxxxzxxxxxxxxxbffhibdgffdgdbbbaaabbbbbbbcdkbhfibccccccccccccccccccccccdcdioijk"
    "babababbbaccbbbabcbaabccccckgjixprpprrrsrssssststtrstssssqrsrsstrqprrssqsrrtqrssqqrqsrssprrrsrrs"
    "vvporsruvvvwwvtuoqvwwvwtqqvvxwwwptpqrqqsrruuttvsvwvvwwwwwxwwwwwvz"
)
END: Final = 256
PADDING_BITS_MAX: Final = 7

# By node: where 0 and 1 lead to. A symbol is -1 - symbol.
_zero: Final[list[int]] = [0]
_one: Final[list[int]] = [0]
# Nodes where a text may end: on the way to the end symbol, which is all ones.
_final: Final[set[int]] = {0}
_moves: Final[dict[int, tuple[int, bytes]]] = {}


def _plant() -> None:
    code = 0
    bits = 0
    for symbol in sorted(range(END + 1), key=_place):
        more = ord(LENGTHS[symbol]) - 92 - bits
        code <<= more
        bits += more
        node = 0
        for shift in range(bits - 1, -1, -1):
            branch = _one if code >> shift & 1 else _zero
            if shift == 0:
                branch[node] = -1 - symbol
            elif branch[node] == 0:
                _zero.append(0)
                _one.append(0)
                branch[node] = len(_zero) - 1
            node = branch[node]
        code += 1
    node = 0
    for _ in range(PADDING_BITS_MAX):
        node = _one[node]
        _final.add(node)


def _place(symbol: int) -> tuple[str, int]:
    return LENGTHS[symbol], symbol


_plant()


def decode(data: bytes) -> bytes:
    """Raises WireError for what is no text of this code."""
    node = 0
    parts: list[bytes] = []
    for byte in data:
        move = _moves.get(node << 8 | byte)
        if move is None:
            move = _move(node, byte)
        node = move[0]
        parts.append(move[1])
    if node not in _final:
        raise WireError("a Huffman text ends within a symbol")
    return b"".join(parts)


def _move(start: int, byte: int) -> tuple[int, bytes]:
    node = start
    found = bytearray()
    for shift in range(7, -1, -1):
        node = _one[node] if byte >> shift & 1 else _zero[node]
        if node < 0:
            if node == -1 - END:
                raise WireError("a Huffman text has the end symbol in it")
            found.append(-1 - node)
            node = 0
    move = (node, bytes(found))
    _moves[start << 8 | byte] = move
    return move
