"""The rest of bearer tokens, without a clock."""

from __future__ import annotations

import json

import pytest

from zmqtriton_extras.openai.token_metrics.allowances import Allowances

S = 10**9
DESK, NIGHT = ("desk", 60), ("night", 60)


def test_a_minutes_tokens_may_be_used_at_once_and_a_debt_is_waited_for() -> None:
    allowances = Allowances()
    allowances.use(DESK, 59, S)
    before = allowances.ready_ns(DESK, S)

    allowances.use(DESK, 21, S)

    assert before == 0
    assert allowances.ready_ns(DESK, S) - S == 21 * S, "20 of debt and one to have, one a second"
    assert allowances.ready_ns(DESK, 22 * S) == 0


def test_what_is_left_is_never_more_than_a_minutes() -> None:
    allowances = Allowances()
    allowances.use(DESK, 1, S)

    allowances.use(DESK, 60, 10_000 * S)

    assert allowances.ready_ns(DESK, 10_000 * S) == 10_001 * S


def test_other_tokens_and_another_limit_are_apart() -> None:
    allowances = Allowances()
    allowances.use(DESK, 1000, S)

    assert allowances.ready_ns(NIGHT, S) == 0
    assert allowances.ready_ns(("desk", 61), S) == 0


def test_another_process_is_told_what_is_used_up() -> None:
    here, there = Allowances(), Allowances()
    here.use(DESK, 70, S)
    here.use(NIGHT, 10, S)

    there.take(json.loads(here.describe_debt(DESK, S)), S)

    assert here.ready_ns(DESK, S) == there.ready_ns(DESK, S)
    assert there.ready_ns(DESK, 30 * S) == 0
    assert here.describe_debt(NIGHT, S) == b""


def test_a_new_process_learns_all_that_the_others_know_and_the_lowest_counts() -> None:
    first, second, new = (Allowances() for _ in range(3))
    first.use(DESK, 70, S)
    second.use(DESK, 80, S)
    second.use(NIGHT, 10, S)

    for line in (first.describe(S) + second.describe(S)).splitlines():
        new.take(json.loads(line), S)

    assert second.ready_ns(DESK, S) == new.ready_ns(DESK, S)
    new.use(NIGHT, 50, S)
    assert new.ready_ns(NIGHT, S) == 2 * S


def test_the_oldest_of_too_many_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zmqtriton_extras.openai.token_metrics.allowances._MAX_KEYS", 2)
    allowances = Allowances()

    for name in ("a", "b", "c"):
        allowances.use((name, 60), 100, S)

    assert [allowances.ready_ns((n, 60), S) and True for n in ("a", "b", "c")] == [0, True, True]
