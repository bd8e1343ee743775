"""The findings about models, from answers of a server that are made up."""

from __future__ import annotations

from typing import Any

import pytest

from zmqtriton.ctl.explaining.findings import Facts, Finding, find_all

NOT_HEALTHY = "Internal: Stub process 'm_0' is not healthy."
FAILED = "Failed to process the request(s) for model 'm_0', message: "
AT = "\n\nAt:\n  /models/m/1/model.py(8): initialize\n"
LOST = "depends on 'member' which has no loaded version. Model 'member' loading failed with error:"
READY = {"name": "m", "version": "1", "state": "READY"}


def unavailable(reason: str, name: str = "m") -> dict[str, str]:
    return {"name": name, "version": "1", "state": "UNAVAILABLE", "reason": reason}


def counts(**figures: Any) -> dict[str, Any]:
    usual = dict.fromkeys(
        ("succeeded", "failed", "faults", "pending", "unanswered", "executions", "success_ns"), 0
    )
    return {"model": "m", "version": 1, **usual, "busy_s": 0.0, **figures}


def stub(state: str = "READY", **more: Any) -> dict[str, Any]:
    usual = {"role": "stub", "model": "m", "version": 1, "instance": "m_0", "started_s": 0.0}
    return {**usual, "state": state, "restarts": 0, "last_reason": "", **more}


def first(facts: Facts) -> Finding:
    return find_all(facts)[0]


REASONS = {
    f"Internal: ModuleNotFoundError: No module named 'x'{AT}": "cannot import 'x'",
    "Internal: ImportError: cannot import name 'a' from 'b'": "an import fails: ImportError",
    "Internal: SyntaxError: invalid syntax (model.py, line 4)": "its code cannot be read",
    f"Internal: ValueError: bad{AT}": "it raises ValueError: bad (model.py, line 8, in initialize)",
    f"Internal: torch.OutOfMemoryError: CUDA out of memory.{AT}": "the memory of the GPU",
    f"Internal: MemoryError: no room{AT}": "it has no memory left: MemoryError: no room",
    "Internal: PermissionError: [Errno 13] Permission denied: '/data'": "it may not: [Errno 13]",
    f"Internal: OSError: [Errno 24] Too many open files: '/x'{AT}": "no file descriptors left",
    f"{NOT_HEALTHY} (killed by SIGSEGV: Segmentation fault{AT})": "it crashes in native code",
    f"{NOT_HEALTHY} (killed by SIGKILL, by the kernel: out of memory)": "the kernel has killed it",
    f"{NOT_HEALTHY} (killed by SIGKILL)": "somebody has killed it",
    f"{NOT_HEALTHY} (exited with status 3)": "its process ends itself, with status 3",
    f"{NOT_HEALTHY} (it used 300 of at most 200 bytes (max_memory_bytes))": "than its quota",
    f"{NOT_HEALTHY} (loading took longer than max_load_seconds (1): Aborted{AT})": "1 s (model.py",
    "instance 'm_0': exited with status 4 (given up after 6 deaths)": "given up after 6 deaths",
    "instance 'm_0': exited with status 4 (given up after 8 deaths, tried again every 30 s)": (
        "given up after 8 deaths in a row, tried again every 30 s: "
    ),
    "Internal: Failed to get the canonical path for /no/such.tar.gz.": "its environment does not",
    "Internal: environment of /m cannot be prepared (exited with status 1): pip": "cannot be made",
    "Internal: The interpreter /e/python cannot be run: Permission denied for the user 'm'": (
        "its Python cannot be run: Permission denied for the user 'm'"
    ),
    "Internal: The interpreter /e/python cannot see its packages: Permission denied for the user "
    "'m' in /e/lib": "its Python cannot see its packages: Permission denied for the user 'm' in",
    "Internal: The interpreter /e/bin/python does not work: Python runtime state: core initialized "
    "/ ModuleNotFoundError: No module named 'encodings'": "its Python cannot start: Python runtime",
    "model appears in two or more repositories": "two repositories have a model of this name",
    "unexpected directory name 'm' for model 'n', directory name must": "its config.pbtxt calls it",
    "at least one version must be available under the version policy of model 'm'": "no version",
    "Invalid argument: Python model file not found in '/m/1/model.py'": "its file /m/1/model.py",
    "Invalid argument: unable to find backend library for backend 'x', try": "no backend 'x'",
    "instance group m_0 of model m specifies invalid or unsupported gpu id 7.": "asks for a GPU",
    "the limit of open files allows 9 instances; there are 8, and": "too few file descriptors",
    "failed to read text\nc/config.pbtxt:5:1: no field named 'x'": "config.pbtxt, line 5",
    "Invalid argument: dims must not be 0 (at /m/config.pbtxt:3)": "its configuration is wrong",
    "model 'm' asks for it in its initialize and would wait for itself": "waits for it",
    "unloaded": "an operator or a client has unloaded it",
    "not loaded: waits for its first request": "it sleeps",
    "not loaded: unloaded after 60 s without requests": "it was unloaded after 60 s",
    "not loaded: unloaded to make room for 'n'": "it was evicted",
    "draining": "it is drained",
    "a reason that nobody has seen": "not ready: a reason that nobody has seen",
}


@pytest.mark.row("L12")
@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_of_the_server_is_explained(reason: str) -> None:
    found = first(Facts("m", index=[unavailable(reason)]))

    assert found.text.startswith("not ready: ")
    assert REASONS[reason] in found.text
    assert found.advice
    assert all(command.split()[0] in ("zmqtriton-ctl", "nvidia-smi") for command in found.commands)
    assert found.commands


def test_an_ensemble_names_its_member_and_why_that_is_not_ready() -> None:
    ensemble = unavailable(f"Invalid argument: ensemble 'm' {LOST} version 1", "m")
    member = unavailable(f"Internal: OSError: gone{AT}", "member")

    found = first(Facts("m", index=[ensemble, member]))
    missing = first(Facts("m", index=[ensemble]))
    late = first(Facts("m", index=[ensemble, {**READY, "name": "member"}]))

    assert "not ready: its member 'member' is not ready: it raises OSError: gone" in found.text
    assert "zmqtriton-ctl explain member" == found.commands[0]
    assert "its member 'member' does not exist" in missing.text
    assert "it is now" in late.text


def test_names_and_versions_that_nobody_has_get_a_proposal() -> None:
    index = [READY, {**READY, "name": "resnet"}]

    misspelt = first(Facts("resnt", index=index))
    version = first(Facts("m", 7, index=index))

    assert "there is no such model; did you mean 'resnet'?" == misspelt.text
    assert ("zmqtriton-ctl explain resnet",) == misspelt.commands
    assert "there is no version 7; known: 1" == version.text


def test_commands_can_be_typed_as_they_are() -> None:
    named = [{"name": "a model", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}]

    assert ("zmqtriton-ctl load 'a model'",) == first(Facts("a model", index=named)).commands
    assert ("zmqtriton-ctl load 'a model'",) == first(
        Facts("a model", index=[{"name": "a model"}])
    ).commands


def test_a_model_that_was_never_loaded_and_one_that_still_loads() -> None:
    loading = {"name": "m", "version": "1", "state": "LOADING"}
    status = {"processes": [stub("LOADING", started_s=1000.0)]}
    building = {"processes": [{"role": "environment", "state": "preparing requirements.txt"}]}

    assert "nobody has loaded it" in first(Facts("m", index=[{"name": "m"}])).text
    hanging = first(Facts("m", index=[loading], status=status, now_s=1100.0))
    assert "still loading, since 1m40s, and may hang" in hanging.text
    assert ("zmqtriton-ctl stacks m",) == hanging.commands
    assert "preparing requirements" in first(Facts("m", index=[loading], status=building)).text
    assert "waits for its turn" in first(Facts("m", index=[loading])).text


def test_a_failed_reload_is_told_of_a_model_that_still_serves() -> None:
    reason = f"still served, the last load failed: Internal: ValueError: bad{AT}"

    found = first(Facts("m", index=[{**READY, "reason": reason}]))

    assert "ready, but the last load failed, what served before serves: it raises" in found.text


def test_instances_that_have_died_are_told_with_their_reasons() -> None:
    died = stub(
        "BACKOFF", restarts=2, last_reason="killed by SIGKILL, by the kernel: out of memory"
    )

    found = find_all(Facts("m", index=[READY], status={"processes": [died, stub()]}))

    assert "m_0 has died and waits for its restart: the kernel has killed it" in found[0].text
    assert "1 of 2 instances are ready, others are BACKOFF" == found[1].text


def test_requests_that_fail_are_told_with_the_last_reason() -> None:
    text = f"{FAILED}KeyError: 'x'\\n\\nAt:\\n  m.py(3): execute"
    status = {"counts": [counts(failed=2, faults=2, succeeded=3)]}

    found = first(Facts("m", index=[READY], status=status, log=[{"text": text}]))

    assert "2 of 5 requests failed, the last because it raises KeyError: 'x' (m.py" in found.text


def test_a_full_queue_a_quota_and_a_deadlock_are_told() -> None:
    full = {"counts": [counts(failed=4, failures={"REJECTED": 4})], "processes": [stub()]}
    pace = {
        "counts": [counts(pending=3, unanswered=4)],
        "quotas": [
            {"model": "m", "quota": "max_executions_per_second", "limit": 2, "exceeded": 0},
            {"model": "m", "quota": "max_segment_bytes", "limit": 20, "exceeded": 1},
        ],
    }
    circle = f"{FAILED}BLS calls would deadlock: m -> m"
    log = [{"text": circle}]

    assert (
        "4 requests refused because it was full"
        in first(Facts("m", index=[READY], status=full)).text
    )
    held, exceeded = find_all(Facts("m", index=[READY], status=pace))
    assert "3 requests in its queue, max_executions_per_second is 2" in held.text
    assert "max_segment_bytes (20) was exceeded 1 time" in exceeded.text
    assert "deadlock" in first(Facts("m", index=[READY], status={}, log=log)).text


def test_requests_that_stand_still_differ_from_those_that_wait() -> None:
    hanging = {"counts": [counts(unanswered=2)]}
    waiting = {"counts": [counts(succeeded=10, executions=10, success_ns=9e9, busy_s=0.5)]}

    stands = first(Facts("m", index=[READY], status=hanging, later=hanging))
    waits = first(Facts("m", index=[READY], status=waiting))

    assert "it hangs or is slow: 2 requests in work" in stands.text
    assert "requests take 900.0 ms, and only 50.0 ms of that in the model" == waits.text


def test_a_canary_a_lost_broker_and_a_stopping_server_are_told() -> None:
    canary = {"model": "m", "stable": 1, "canary": 2, "phase": "ABORTED", "reason": "it failed"}
    status = {
        "server": {"ready": "stopping; 0 of 1"},
        "counts": None,
        "canaries": {"models": [{**canary, "weight": 10.0, "shadow": 5.0}]},
    }

    stopping, broker, tried = find_all(Facts("m", index=[READY], status=status))

    assert "the server is stopping" == stopping.text
    assert "the broker does not answer" in broker.text
    assert "version 2 is tried beside version 1 (canary, aborted: it failed; 10 %" in tried.text


def test_a_canary_of_a_model_that_is_well_is_told_last() -> None:
    canary = {"model": "m", "stable": 1, "canary": 2, "phase": "RUNNING", "weight": 10.0}
    status = {"processes": [stub()], "canaries": {"models": [canary]}}

    well, tried = find_all(Facts("m", index=[READY], status=status))

    assert "nothing is wrong" in well.text
    assert "canary, running; 10 % of the requests" in tried.text


def test_a_check_adds_only_what_the_server_has_not_said() -> None:
    problems = [("no field named 'a'", "config.pbtxt:1"), ("no field named 'b'", "config.pbtxt:2")]
    facts = Facts("m", index=[unavailable("no field named 'a'")], problems=problems)

    _, added = find_all(facts)

    assert "a check also finds: no field named 'b' (config.pbtxt:2)" == added.text


def test_of_a_model_that_is_well_its_counts_are_told() -> None:
    row = counts(succeeded=3, executions=3, failed=1, failures={"CANCELED": 1, "BACKEND": 0})
    status = {"processes": [stub()], "counts": [row]}

    found = find_all(Facts("m", index=[READY], status=status))

    text = "ready, 1 of 1 instance ready, 3 requests answered, 1 canceled: nothing is wrong"
    assert [text] == [finding.text for finding in found]
