"""A stub's hello, as many messages as it takes: what it leaves out would be executed again."""

from __future__ import annotations

from zmqtriton_floor import wire


def hellos(hello: wire.Hello, bodies: list[bytes]) -> list[list[bytes]]:
    """Return the frames of messages that one receiver takes; all but the last are continued."""
    header = wire.encode(hello)
    rows = max(len(hello.received), len(hello.unconfirmed))
    fits = rows <= wire.MAX_ROWS and len(header) <= wire.MAX_HEADER_BYTES
    if fits or rows < 2:
        return [[header, *bodies]]
    middle = rows // 2
    received, unconfirmed = hello.received, hello.unconfirmed
    first = hello._replace(
        received=received[:middle], unconfirmed=unconfirmed[:middle], is_continued=1
    )
    rest = hello._replace(received=received[middle:], unconfirmed=unconfirmed[middle:])
    return [*hellos(first, bodies[:middle]), *hellos(rest, bodies[middle:])]
