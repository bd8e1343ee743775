"""What explain says of models at work, from answers of a server that are made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.standard.tools.explaining.test_findings import READY, counts, steps_of, stub
from zmqtriton.findings import Finding
from zmqtriton_extras.inspection import explaining
from zmqtriton_extras.inspection.explaining.reading import AtWork
from zmqtriton_extras.inspection.explaining.reading import steps_of as steps_in
from zmqtriton_extras.inspection.explaining.sharing import Memory
from zmqtriton_standard.tools.explaining import findings as standard
from zmqtriton_standard.tools.explaining.facts import Facts


def find_all(facts: Facts, memory: Memory | None = None) -> list[Finding]:
    names = steps_in(facts.config)
    known = AtWork(memory, facts.config, {facts.model: names} if names else {}, facts.stacks)
    return standard.find_all(replace(facts, of_add_ons=[(explaining, known)]))


def explain(row: dict[str, Any], **more: Any) -> list[Finding]:
    status = {"counts": [row], "processes": [stub()]}
    return find_all(Facts("m", index=[READY], status=status, now_s=1000.0, **more))


def test_an_ensemble_has_its_slowest_step_named_and_is_not_scaled() -> None:
    def step(model: str, wait_ns: float, compute_ns: float) -> dict[str, Any]:
        figures = {"succeeded": 10, "executed": 10, "queue_ns": wait_ns, "compute_ns": compute_ns}
        return {**counts(**figures), "model": model}

    steps = [step("fast", 0, 1e7), step("slow", 5e9, 4e9), step("other", 9e9, 9e9)]
    processes = [{**stub(), "model": "slow"}, {**stub(), "model": "slow"}]
    waits = counts(succeeded=10, executed=10, success_ns=9e9, queue_ns=8e9)
    computes = {**waits, "queue_ns": 1e9}
    refused = {**computes, "failed": 4, "refusals": {"max_queue_size": 4}}
    facts = Facts("m", index=[READY], config=steps_of("fast", "slow", "unasked"))

    def findings(row: dict[str, Any]) -> list[Finding]:
        return find_all(replace(facts, status={"counts": [row, *steps], "processes": processes}))

    waiting, slowest = findings(waits)
    nothing, again = findings(computes)
    full = findings(refused)[0]

    text = "requests take 900.0 ms, and 800.0 ms of that in the queues of its steps, the most at"
    assert f"{text} 'slow'" == waiting.text
    assert "zmqtriton-ctl scale slow 3" in waiting.commands
    assert ("zmqtriton-ctl scale slow 3",) == full.commands
    assert "nothing is wrong" in nothing.text
    text = "its slowest step is 'slow': a request to it takes 900.0 ms, 500.0 ms of that in the"
    assert f"{text} queue" == slowest.text == again.text


def test_forks_that_load_the_same_are_told_what_preload_would_save() -> None:
    memory = Memory(300 << 20, 10 << 20, 305 << 20, 256 << 20)
    template = {"role": "template", "model": "m", "version": 1, "pid": 7, "instances": "forks"}
    forks = [template, *(stub(instance=f"m_{n}", pid=n) for n in (8, 9))]

    def texts(processes: list[dict[str, Any]], memory: Memory) -> str:
        facts = Facts("m", index=[READY], status={"processes": processes})
        return " ".join(one.text + one.advice for one in find_all(facts, memory))

    said = texts(forks, memory)
    assert "its 2 forks hold 512 MiB of equal pages, which each has made for itself" in said
    assert "`preload` would hold once: 256 MiB" in said
    assert "preload" not in texts(forks, memory._replace(equal=1 << 20))
    assert "preload" not in texts([{**template, "instances": "threads"}, *forks[1:]], memory)


def test_a_leak_is_told_with_what_bounds_it() -> None:
    grown = {"executions": 256, "before": 220 << 20, "after": 732 << 20}
    stubs = [stub(growth=None), stub(growth=grown, instance="m_1"), stub(growth=grown)]

    (leak,) = find_all(Facts("m", index=[READY], status={"processes": stubs}))

    said = (
        "it leaks memory: instance m_1 has grown by 2 MiB with each execution, from 220 MiB to "
        "732 MiB in 256 executions, 2 of 3 instances do"
    )
    assert said == leak.text
    assert "the parameter max_memory_bytes in config.pbtxt replaces an instance" in leak.advice


def test_a_leak_that_is_bounded_is_told_with_the_bound() -> None:
    grown = {"executions": 256, "before": 220 << 20, "after": 732 << 20}
    quota = {"model": "m", "quota": "max_memory_bytes", "limit": 1 << 30, "exceeded": 0}
    status = {"processes": [stub(growth=grown)], "quotas": [quota]}

    leak, *_ = find_all(Facts("m", index=[READY], status=status))

    assert leak.advice.endswith("An instance is replaced at 1 GiB (max_memory_bytes).")


def test_a_leak_comes_before_a_wait_and_behind_a_failure() -> None:
    grown = {"executions": 256, "before": 220 << 20, "after": 732 << 20}
    figures = {"succeeded": 10, "executions": 10, "success_ns": 9e9, "busy_s": 0.5}
    entry = counts(**figures, executed=10, queue_ns=8.5e9, failed=4, faults=4)
    status = {"processes": [stub(growth=grown)], "counts": [entry]}

    failure, leak, wait = find_all(Facts("m", index=[READY], status=status))

    assert "4 of 14 requests" in failure.text
    assert "it leaks memory" in leak.text
    assert "in the queue" in wait.text


def test_equal_memory_of_instances_is_worth_advice_and_little_of_it_is_not() -> None:
    status = {"processes": [stub(pid=pid) for pid in (4, 5, 6)]}
    facts = Facts("m", index=[READY], status=status)

    *_, finding = find_all(facts, Memory(300 << 20, 5 << 20, 302 << 20, 200 << 20))
    little = find_all(facts, Memory(300 << 20, 5 << 20, 302 << 20, 1 << 20))

    assert finding.text == (
        "its 3 instances hold 600 MiB of equal pages; "
        "each has 300 MiB of its own and 5 MiB in common (PSS 302 MiB)"
    )
    assert (
        "They would be held once, 200 MiB, if INSTANCES is `forks` and the static method `preload`"
        in finding.advice
    )
    assert little[-1].text == (
        "each of its 3 instances has 300 MiB of its own and 5 MiB in common (PSS 302 MiB)"
    )


def test_one_instance_has_a_price_too_with_what_it_has_on_gpus() -> None:
    memory = Memory(3 << 20, 5 << 20, 4 << 20, 0, {"0": 1 << 30, "1": 60 << 20})
    facts = Facts("m", index=[READY], status={"processes": [stub(pid=4)]})

    assert find_all(facts, memory)[-1].text == (
        "its instance has 3 MiB of its own and 5 MiB in common (PSS 4 MiB), "
        "1 GiB on GPU 0, 60 MiB on GPU 1"
    )


@pytest.mark.parametrize("kind", ["forks", "threads"])
def test_instances_of_one_load_name_the_process_that_has_loaded_it(kind: str) -> None:
    template = {"role": "template", "model": "m", "version": 1, "pid": 9, "instances": kind}
    status = {"processes": [stub(pid=4), template]}
    facts = Facts("m", index=[READY], status=status)

    *_, finding = find_all(facts, Memory(1 << 20, 2 << 20, 2 << 20, 0))

    whose = {"forks": "each", "threads": "that"}[kind]
    assert f"its 1 instance is of the {kind} of process 9; {whose} has 1 MiB" in finding.text


def test_requests_that_wait_for_a_stream_are_not_said_to_wait_for_an_instance() -> None:
    streams = {"open": 2, "room": 0, "limit": 2}
    row = counts(succeeded=9, pending=3, unanswered=5, streams=streams)
    later = {"counts": [row]}

    (finding,) = explain(row, later=later)
    (one,) = explain({**row, "pending": 1}, later=later)

    said = "wait for a stream to end, not for an instance: 2 are open, and MAX_STREAMS lets an"
    assert f"3 requests {said} instance have 2" == finding.text
    assert "Raise MAX_STREAMS" in finding.advice
    assert "zmqtriton-ctl scale m 2" == finding.commands[0]
    assert one.text.startswith("1 request waits for a stream")


def test_requests_that_wait_for_a_stream_are_told_before_those_whose_threads_are_slow() -> None:
    config = {"model_transaction_policy": {"decoupled": True}}
    streams = {"open": 2, "room": 0, "limit": 2}
    row = counts(succeeded=9, success_ns=9 * 10**9, pending=1, unanswered=3, streams=streams)

    (finding,) = explain(row, config=config, later={"counts": [{**row, "succeeded": 10}]})

    assert finding.text.startswith("1 request waits for a stream to end")


def test_past_waits_for_a_stream_are_told_as_such() -> None:
    streams = {"open": 0, "room": 2, "limit": 2}
    row = counts(succeeded=9, success_ns=9 * 10**9, queue_ns=8 * 10**9, executed=9, streams=streams)

    (finding,) = explain(row)

    assert "in the queue" in finding.text
    assert "They wait for a stream to end: an instance has 2 (MAX_STREAMS)" in finding.advice


def test_the_number_to_scale_to_counts_one_version_and_nothing_that_leaves() -> None:
    rows = [
        stub("DRAINING", generation=1),
        stub("STOPPING", generation=1),
        stub(generation=2),
        stub(generation=3, version=2),
        stub("LOADING", generation=3, version=2),
    ]
    waiting = counts(succeeded=10, executed=10, success_ns=9e9, queue_ns=8e9)

    found = find_all(Facts("m", index=[READY], status={"counts": [waiting], "processes": rows}))

    [command] = [each for one in found for each in one.commands if " scale " in each]
    assert command == "zmqtriton-ctl scale m 3"
