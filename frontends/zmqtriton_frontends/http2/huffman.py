"""The code of RFC 7541 (appendix B) for the strings of header blocks: decodes it, four bits a step.

The server's own blocks are not coded, so there is no encoder.
"""

from __future__ import annotations

#: The bytes that have a code of so many bits. Codes are numbers in this order, each one more than
#: the one before; the last of the longest is the end of a string, which no string may have.
_BY_LENGTH = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\x00$@[]~",
    14: b"^}",
    15: b"<`{",
    19: b"\\\xc3\xd0",
    20: b"\x80\x82\x83\xa2\xb8\xc2\xe0\xe2",
    21: b"\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6",
    22: b"\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa"
    b"\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4\xc6\xe4\xe8\xe9",
    23: b"\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b"
    b"\x9d\x9e\xa5\xa6\xa8\xae\xaf\xb4\xb6\xb7\xbc\xbf\xc5\xe7\xef",
    24: b"\t\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed",
    25: b"\xc7\xcf\xea\xeb",
    26: b"\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff",
    27: b"\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe",
    28: b"\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12"
    b"\x13\x14\x15\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f\xdc\xf9",
    30: b"\n\r\x16",
}
_END = 256
#: Where a code has led that there is not; every step from there leads there.
_NOWHERE = 256
#: Padding are the first bits of the end, fewer than these.
_PADDING_BITS = 8


class BadCodeError(ValueError):
    """Raised for bytes that are no string in this code."""


def decode(data: bytes) -> bytes:
    """Decode a string. Raises BadCodeError."""
    text, state, steps = bytearray(), 0, _STEPS
    for byte in data:
        state, symbol = steps[state | byte >> 4]
        if symbol:
            text += symbol
        state, symbol = steps[state | byte & 15]
        if symbol:
            text += symbol
    if state not in _FINAL:
        raise BadCodeError("a header's string is no code")
    return bytes(text)


def _tree() -> list[list[int]]:
    """Return the node or, below zero, the symbol that each bit leads to from each node."""
    nodes = [[0, 0]]
    code, length = -1, min(_BY_LENGTH)
    for bits, symbols in _BY_LENGTH.items():
        for symbol in (*symbols, *((_END,) if bits == max(_BY_LENGTH) else ())):
            code, length = (code + 1) << (bits - length), bits
            node = 0
            for place in range(bits - 1, 0, -1):
                bit = code >> place & 1
                if not nodes[node][bit]:
                    nodes.append([0, 0])
                    nodes[node][bit] = len(nodes) - 1
                node = nodes[node][bit]
            nodes[node][code & 1] = ~symbol
    return nodes


def _steps(nodes: list[list[int]]) -> list[tuple[int, bytes]]:
    """Return where four bits lead from each node, and the symbol that they complete, or b""."""
    steps = []
    for start in range(len(nodes)):
        for bits in range(16):
            node, symbol = start, b""
            for place in (3, 2, 1, 0):
                node = nodes[node][bits >> place & 1] if node != _NOWHERE else _NOWHERE
                if node == ~_END:
                    node = _NOWHERE
                elif node < 0:
                    node, symbol = 0, bytes((~node,))
            steps.append((node << 4, symbol))
    return steps + [(_NOWHERE << 4, b"")] * 16


def _final(nodes: list[list[int]]) -> frozenset[int]:
    """Return the states in which a string may end."""
    path = [0]
    while len(path) < _PADDING_BITS:
        path.append(nodes[path[-1]][1])
    return frozenset(node << 4 for node in path)


_NODES = _tree()
_STEPS = _steps(_NODES)
_FINAL = _final(_NODES)
