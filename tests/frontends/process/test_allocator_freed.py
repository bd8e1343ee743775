"""Memory that is freed without a ledger knowing it."""

from __future__ import annotations

from zmqtriton_frontends.process.allocator import Freed


def test_a_few_tries_follow_what_was_expected_and_no_more() -> None:
    freed = Freed()
    assert not freed.is_likely()

    freed.expect()
    tries = [freed.is_likely() for _ in range(10)]

    assert tries == [True] * 5 + [False] * 5
    freed.expect()
    assert freed.is_likely()
