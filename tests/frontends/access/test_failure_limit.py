from __future__ import annotations

import pytest

from zmqtriton_frontends.access.failure_limit import (
    MAX_ADDRESSES,
    MAX_AT_ONCE,
    SECONDS_FOR_ONE,
    FailureLimit,
)


@pytest.mark.row("L09")
def test_so_many_failures_are_answered_and_then_their_address_waits() -> None:
    limit = FailureLimit()

    waits = [limit.add("192.0.2.1", 100.0).wait_s for _ in range(MAX_AT_ONCE + 2)]

    assert waits == [0] * MAX_AT_ONCE + [SECONDS_FOR_ONE] * 2
    assert limit.add("192.0.2.2", 100.0).wait_s == 0
    assert limit.add("192.0.2.1", 100.0 + SECONDS_FOR_ONE).wait_s == 0
    assert limit.add("192.0.2.1", 100.0 + SECONDS_FOR_ONE).wait_s == SECONDS_FOR_ONE


def test_waiting_is_told_in_whole_seconds_that_suffice() -> None:
    limit = FailureLimit()
    for _ in range(MAX_AT_ONCE):
        limit.add("192.0.2.1", 0.0)

    wait_s = limit.add("192.0.2.1", 1.5).wait_s

    assert wait_s == 2
    assert limit.add("192.0.2.1", 1.5 + wait_s).wait_s == 0


def test_a_burst_begins_once_and_ends_with_a_silence() -> None:
    limit = FailureLimit()

    assert limit.add("192.0.2.1", 0.0).begins_burst
    assert not any(limit.add("192.0.2.1", 0.1 * i).begins_burst for i in range(1, 500))
    silent_since_s = 50.0
    assert not limit.add("192.0.2.1", silent_since_s + 30).begins_burst
    assert limit.add("192.0.2.1", silent_since_s + 200).begins_burst


def test_addresses_that_one_client_has_count_together() -> None:
    limit = FailureLimit()

    for number in range(MAX_AT_ONCE):
        assert limit.add(f"2001:db8::{number:x}", 0.0).wait_s == 0
    assert limit.add("2001:db8::ffff:ffff:ffff:ffff", 0.0).wait_s
    assert limit.add("2001:db8:0:1::1", 0.0).wait_s == 0
    assert limit.add("fe80::1%eth0", 0.0).begins_burst
    assert not limit.add("fe80::2%eth1", 0.0).begins_burst

    assert limit.add("::ffff:192.0.2.7", 0.0).begins_burst
    assert limit.add("::ffff:192.0.2.8", 0.0).begins_burst
    assert not limit.add("192.0.2.7", 0.0).begins_burst


@pytest.mark.row("L09")
def test_however_many_addresses_there_are_the_memory_is_bounded() -> None:
    limit = FailureLimit()
    for _ in range(MAX_AT_ONCE):
        limit.add("192.0.2.1", 0.0)

    for number in range(2 * MAX_ADDRESSES):
        limit.add(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
        if number < MAX_ADDRESSES:
            assert limit.add("192.0.2.1", 0.0).wait_s, "who goes on is not forgotten"
    limit.add("x" * 10_000, 0.0)

    assert len(limit) == MAX_ADDRESSES
    assert max(len(holder) for holder in limit._buckets) <= 64
