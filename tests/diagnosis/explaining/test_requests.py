"""Findings about requests that were too late or refused, from answers that are made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.diagnosis.explaining.test_findings import READY, counts, stub
from zmqtriton.diagnosis.facts.served import Facts
from zmqtriton.diagnosis.rules.requests import judge_tokens
from zmqtriton.diagnosis.rules.served import find_all
from zmqtriton.findings import Finding

CALLED = '  File "/s/zmqtriton_stub/model.py", line 106 in execute'


def explain(row: dict[str, Any], **more: Any) -> list[Finding]:
    status = {"counts": [row], "processes": [stub()]}
    return find_all(Facts("m", index=[READY], status=status, now_s=1000.0, **more))


def late(count: int, *, executed_ms: float, **more: Any) -> dict[str, Any]:
    """Return the counts of requests whose clients wait for 0.1 s, 0.02 s of it in the queue."""
    overdue = {"count": count, "allowed_s": 0.1 * count, "queued_s": 0.02 * count, "at_s": 997.0}
    usual = {"faults": count, "failures": {"OTHER": count}, "executed": 10}
    times = {"compute_ns": 10 * executed_ms * 1e6, "overdue": overdue, "failed": count}
    return counts(**{**usual, **times, **more})


def test_what_waits_behind_such_executions_is_not_helped_by_more_instances() -> None:
    row = late(90, executed_ms=150, failed=95, failures={"OTHER": 90, "REJECTED": 5}, deadlines=95)

    _, waited = explain(row)

    assert "5 of 95 requests waited in the queue until their deadline" == waited.text
    assert () == waited.commands


@pytest.mark.parametrize(
    ("executed_ms", "said", "command"),
    [(85, "20 ms of it went by in the queue", "scale m 2"), (0, "while they were", "stats m")],
)
def test_a_deadline_that_an_execution_would_meet_is_told_with_the_queue(
    executed_ms: float, said: str, command: str
) -> None:
    (finding,) = explain(late(4, executed_ms=executed_ms, executed=bool(executed_ms) * 10))

    assert said in finding.text
    assert [f"zmqtriton-ctl {command}"] == [*finding.commands]


def test_of_executions_that_take_different_times_the_mean_is_told() -> None:
    row = late(4, executed_ms=30)
    row["overdue"]["queued_s"] = 0.0

    (finding,) = explain(row)

    assert "takes 30 ms on average" in finding.text
    assert "Some executions take longer" in finding.advice


def test_an_overview_leaves_out_few_that_were_late_long_ago() -> None:
    row = late(1, executed_ms=150, succeeded=999)
    long_ago = replace(Facts("m", index=[READY], status={"counts": [row]}), now_s=9000.0)

    assert "nothing is wrong" in find_all(replace(long_ago, is_overview=True))[0].text
    assert "1 of 1000 requests failed" in find_all(long_ago)[0].text
    assert "1 of 1000 requests failed" in explain(row, is_overview=True)[0].text


def test_other_failures_are_told_beside_those_that_were_late() -> None:
    failed, overdue = explain(late(4, executed_ms=150, faults=6, failed=6))

    assert "2 of 6 requests failed" == failed.text
    assert "4 of 6 requests failed, the last" in overdue.text


def hanging(number: int, **more: Any) -> dict[str, Any]:
    return stub(instance=f"m_{number}", executing_s=100.4, is_overlong=True, **more)


def test_an_instance_that_hangs_is_told_with_its_place_whatever_the_others_do() -> None:
    stacks = {
        "m_0": ['  File "/r/m/1/model.py", line 3 in other', f"{CALLED}"],
        "m_1": ['  File "/r/m/1/model.py", line 9 in wait', f"{CALLED}"],
    }
    row = counts(succeeded=4686, executions=4686, usual_execution_ns=150_000_000)
    status = {"counts": [row], "processes": [stub(executing_s=1.4), hanging(1)]}
    later = {"counts": [{**row, "succeeded": 4700}]}
    facts = Facts("m", index=[READY], status=status, later=later, stacks=stacks)

    (finding,) = find_all(facts)

    said = (
        "instance m_1 hangs or is slow (model.py, line 9, in wait): one execution lasts for "
        "1m40s, where others take 150 ms"
    )
    assert said == finding.text
    assert "max_execution_seconds" in finding.advice
    assert "zmqtriton-ctl restart m --instance m_1" == finding.commands[-1]
    assert facts.is_stuck
    assert not facts.needs_second_look(row)


def test_of_many_that_hang_some_are_told_and_their_number() -> None:
    row = counts(usual_execution_ns=1_000_000, unanswered=9)
    status = {"counts": [row], "processes": [*map(hanging, range(9))]}

    *some, last = find_all(Facts("m", index=[READY], status=status))

    assert ["m_0", "m_1", "m_2", "m_3"] == [finding.text.split()[1] for finding in some]
    assert "9 of its instances hang" == last.text


LONG = {"oldest_execution_ns": 1_500_000_000}


@pytest.mark.parametrize(
    ("figures", "is_overlong", "is_told"),
    [
        ({**LONG, "usual_execution_ns": 0}, False, True),
        ({**LONG, "usual_execution_ns": 9}, True, True),
        # executions of this model are long
        ({**LONG, "usual_execution_ns": 9}, False, False),
        ({"pending": 1}, False, True),
        # open sequences have the slots, and open streams the room
        ({"pending": 1, "sequences": 1}, False, False),
        ({"pending": 1, "sequences": 1, **LONG}, False, True),
        ({"pending": 1, "streams": {"open": 4, "room": 0}}, False, False),
    ],
)
def test_what_has_its_reason_to_take_long_does_not_hang(
    figures: dict[str, Any], is_overlong: bool, is_told: bool
) -> None:
    row = counts(unanswered=1, **figures)
    status = {"counts": [row], "processes": [stub(executing_s=1.5, is_overlong=is_overlong)]}

    text = find_all(Facts("m", index=[READY], status=status, later=status))[0].text

    assert is_told == ("it hangs or is slow: 1 request in progress" in text)


def test_a_token_is_named_that_leaves_others_little() -> None:
    clients = [{"token": name, "requests_per_s": rate} for name, rate in (("a", 99.0), ("b", 1.0))]

    (finding,) = judge_tokens(clients)

    assert finding.text.startswith("the token 'a' sends 99% of the requests")
    assert [] == [*judge_tokens(clients[:1])], "there are no others"


def test_a_model_that_waits_for_one_that_it_calls_needs_more_of_both() -> None:
    own = counts(calls=["n"], executed=10, compute_ns=100_000_000)
    called = {**counts(executed=10, compute_ns=90_000_000), "model": "n"}
    processes = [stub(), stub(model="n", instance="n_0")]

    facts = Facts("m", index=[READY], status={"counts": [own, called], "processes": processes})

    assert ("zmqtriton-ctl scale n 2", "zmqtriton-ctl scale m 2") == facts.scale_commands(own)


def test_a_request_that_waited_until_its_deadline_was_not_refused_by_a_full_queue() -> None:
    (finding,) = explain(counts(failed=3, succeeded=2, failures={"REJECTED": 3}, deadlines=3))

    assert "3 of 5 requests waited in the queue until their deadline" == finding.text
    assert ("zmqtriton-ctl scale m 2",) == finding.commands
