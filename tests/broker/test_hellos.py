"""A hello of several parts."""

from __future__ import annotations

import gc

from tests.broker.world import TOKEN
from zmqtriton.broker.hellos import Hellos
from zmqtriton_floor import wire


class Connection:
    """Stands for one; that it exists is all that counts."""


def _part(first: int, *, is_continued: bool) -> tuple[wire.Hello, list[bytes]]:
    outcome = wire.Outcome(1, first + 1, 0, "", wire.FINAL)
    hello = wire.Hello(7, TOKEN, 2, [wire.RequestKey(1, first)], [outcome], 3, 4)
    return hello._replace(is_continued=int(is_continued)), [b"body %d" % (first + 1)]


def test_a_plain_hello_is_what_it_is() -> None:
    part = _part(1, is_continued=False)

    assert part == Hellos().join(Connection(), *part)


def test_parts_are_put_together_in_their_order() -> None:
    hellos, connection, other = Hellos(), Connection(), Connection()
    for first in (1, 3):
        assert hellos.join(connection, *_part(first, is_continued=True)) is None
    assert hellos.join(other, *_part(11, is_continued=True)) is None

    whole = hellos.join(connection, *_part(5, is_continued=False))

    assert whole is not None
    hello, bodies = whole
    assert [1, 3, 5] == [key.id for key in hello.received]
    assert [2, 4, 6] == [outcome.id for outcome in hello.unconfirmed]
    assert [b"body 2", b"body 4", b"body 6"] == bodies
    assert (7, TOKEN, 2, 3, 4, 0) == (*hello[:3], *hello[5:])
    assert _part(7, is_continued=False) == hellos.join(connection, *_part(7, is_continued=False))


def test_of_a_connection_that_has_ended_nothing_stays() -> None:
    hellos, connection = Hellos(), Connection()
    hellos.join(connection, *_part(1, is_continued=True))

    del connection
    gc.collect()

    assert not hellos._begun
