"""The trouble of a version that is ready, in a line."""

from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_standard.cockpit.status import trouble_of

NOW_S = 1000.0
CALM: dict[str, Any] = {"requests_per_s": 0.0, "failures_per_s": 0.0, "queue_ms": None}
PACE = {"quota": "max_executions_per_second", "limit": 0.5}
DEAD = {"instance": "m_0_0", "restarts": 2, "started_s": 990.0, "last_reason": "killed by SIGKILL"}


def counts(**more: Any) -> dict[str, Any]:
    return {"pending": 0, **more}


def error(text: str, at_s: float = 995.0) -> dict[str, Any]:
    return {"text": text, "at_s": at_s}


def trouble(
    counts: dict[str, Any],
    rates: dict[str, Any] = CALM,
    processes: tuple[dict[str, Any], ...] = (),
    quotas: tuple[dict[str, Any], ...] = (),
) -> str:
    return trouble_of(counts, {**CALM, **rates}, processes, quotas, NOW_S)


def test_a_version_that_is_well_has_none() -> None:
    well = {"requests_per_s": 100.0, "queue_ms": 3.0}

    assert "" == trouble(counts(pending=3, oldest_execution_ns=20_000_000), well)
    assert "" == trouble(counts(last_error=error("once")), well)


@pytest.mark.parametrize(
    ("last_error", "said"),
    [
        (error("KeyError: 'no such column'\n\nAt:\n  x"), "requests fail: KeyError: 'no such"),
        (error("it was long ago", at_s=900.0), ""),
        (None, ""),  # its reader may not see it, or its clients have left
    ],
)
def test_failures_have_the_first_line_of_the_last_error(last_error: Any, said: str) -> None:
    text = trouble(counts(last_error=last_error), {"failures_per_s": 2.0})

    assert bool(said) == bool(text)
    assert text.startswith(said)
    assert "\n" not in text


def test_an_instance_that_has_died_is_named_for_a_while() -> None:
    restarted = {**DEAD, "why": {"kind": "RESTARTED"}}

    said = "instance m_0_0 has died: killed by SIGKILL"
    assert said == trouble(counts(), processes=({"restarts": 0}, DEAD))
    assert "" == trouble(counts(), processes=(restarted, {**DEAD, "started_s": 900.0}))


def test_a_quota_is_named_that_holds_requests_back() -> None:
    said = "its quota holds 1 request back: max_executions_per_second is 0.5"

    assert said == trouble(counts(pending=1), quotas=(PACE,))
    assert "" == trouble(counts(), quotas=(PACE,))
    assert "" == trouble(counts(pending=1), quotas=({"quota": "max_memory_bytes", "limit": 1},))


def test_a_long_execution_is_trouble_if_nothing_is_answered_meanwhile() -> None:
    said = "an execution takes 12 s already, and no request is answered meanwhile"
    long = counts(oldest_execution_ns=12_000_000_000)

    assert said == trouble(long)
    assert f"{said}; 3 in the queue" == trouble({**long, "pending": 3})
    assert "" == trouble(long, {"requests_per_s": 0.2})
    assert "" == trouble(counts(oldest_execution_ns=2_000_000_000))


def test_an_instance_that_executes_far_longer_than_others_is_trouble_though_those_answer() -> None:
    usual = counts(usual_execution_ns=20_000_000)
    hung = {"instance": "m_0_1", "executing_s": 75.3, "is_overlong": True}
    well = {"instance": "m_0_0", "executing_s": 0.01, "is_overlong": False}
    serving = {"requests_per_s": 90.0}

    said = "instance m_0_1 hangs: an execution has lasted 75 s, where others take 20 ms"
    assert said == trouble(usual, serving, (well, hung))
    assert "" == trouble(usual, serving, (well, {**hung, "executing_s": 59.0}))
    assert "" == trouble(usual, serving, (well, {**hung, "is_overlong": False}))


def test_memory_that_grows_with_each_execution_is_trouble() -> None:
    grown = {"executions": 256, "before": 220 << 20, "after": 734 << 20}
    leaking = {"instance": "m_0_1", "growth": grown}

    said = "instance m_0_1 leaks memory: it has grown from 220 MiB to 734 MiB in 256 executions"
    assert said == trouble(counts(), processes=({"instance": "m_0_0", "growth": None}, leaking))


def test_code_that_differs_from_its_configuration_is_trouble() -> None:
    rows = {"instance": "m_0_0"}, {"instance": "m_0_1", "mismatches": ["sent 'Z'"]}

    assert "its code sent 'Z'" == trouble(counts(), processes=rows)


def test_of_several_troubles_two_are_told_and_failures_first() -> None:
    full = error("Exceeds maximum queue size (max_requests)")
    long = counts(pending=1, oldest_execution_ns=7_000_000_000, last_error=full)
    rates = {"failures_per_s": 20.0, "queue_ms": 900.0}

    assert (
        "requests fail: Exceeds maximum queue size (max_requests); an execution takes 7 s already, "
        "and no request is answered meanwhile; 1 in the queue" == trouble(long, rates)
    )


def test_a_long_wait_in_the_queue_is_trouble() -> None:
    busy = {"requests_per_s": 3.0, "queue_ms": 900.0}

    assert "requests wait 0.9 s for an instance" == trouble(counts(), busy)
    assert "" == trouble(counts(), {**busy, "queue_ms": 90.0})
