from __future__ import annotations

import random
from collections import deque
from typing import Any

from zmqtriton_frontends.process.kept_parts import copy_some

_STEP_BYTES = 1 << 20


def test_what_is_our_own_is_not_copied() -> None:
    parts: list[Any] = [b"a", memoryview(b"b")]

    assert not copy_some(parts)
    assert [b"a", b"b"] == parts


def test_a_step_copies_no_more_than_a_mebibyte() -> None:
    other = bytearray(random.Random(1).randbytes(5 * _STEP_BYTES // 2))
    parts: Any = deque((memoryview(b"head"), memoryview(other), memoryview(b"tail")))

    steps = 0
    while copy_some(parts):
        steps += 1
        left = sum(len(part) for part in parts if part.obj is other)
        assert max(0, len(other) - steps * _STEP_BYTES) == left

    assert 3 == steps
    assert b"head" + other + b"tail" == b"".join(parts)


def test_what_is_sent_between_two_steps_is_sent_once() -> None:
    other = bytearray(random.Random(2).randbytes(3 * _STEP_BYTES))
    parts: Any = deque((memoryview(other),))
    sent = bytearray()

    while copy_some(parts):
        sent += parts.popleft()

    assert other == sent + b"".join(parts)
