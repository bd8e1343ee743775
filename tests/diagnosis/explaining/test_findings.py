"""Findings about models, their directories and places in their stacks, from made-up answers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.floor.reasons import because
from tests.support.server import MODELS_DIRECTORY
from tests.support.slow_files import SlowFiles
from zmqtriton.diagnosis.facts.places import find_place
from zmqtriton.diagnosis.facts.served import Facts
from zmqtriton.diagnosis.facts.server import Directories
from zmqtriton.diagnosis.rules.causes import ROWS, explain_reason
from zmqtriton.diagnosis.rules.served import find_all
from zmqtriton.findings import Finding
from zmqtriton_floor.reasons import Kind, Reason

FAILED = "Failed to process the request(s) for model 'm_0', message: "
AT = "\n\nAt:\n  /models/m/1/model.py(8): initialize\n"
READY = {"name": "m", "version": "1", "state": "READY"}


def unavailable(reason: Reason, name: str = "m") -> dict[str, Any]:
    entry = {"name": name, "version": "1", "state": "UNAVAILABLE"}
    return {**entry, "reason": reason.text, "why": reason.document()}


def raised(exception: str, message: str) -> Reason:
    return Reason.of(
        Kind.EXCEPTION,
        f"Internal: {exception}: {message}{AT}",
        exception=exception,
        message=message,
        file="/models/m/1/model.py",
        line=8,
        function="initialize",
    )


def ended(reason: Reason, output: str) -> Reason:
    """A process that has written this before its end."""
    text = f"{reason.text}: {output}"
    return reason._replace(text=text, values={**reason.values, "output": output})


def counts(**figures: Any) -> dict[str, Any]:
    usual = dict.fromkeys(
        ("succeeded", "failed", "faults", "pending", "unanswered", "executions", "success_ns"), 0
    )
    return {"model": "m", "version": 1, **usual, "busy_s": 0.0, **figures}


def stub(state: str = "READY", **more: Any) -> dict[str, Any]:
    usual = {"role": "stub", "model": "m", "version": 1, "instance": "m_0", "started_s": 0.0}
    return {**usual, "state": state, "restarts": 0, "last_reason": "", **more}


SILENT = Reason.of(Kind.REPOSITORY_SILENT, "silent", repository="/two")


def test_a_silent_repository_is_told_once_of_models_that_may_be_there() -> None:
    silent = Facts("m", index=[{"name": "m"}], silent_repositories=["/two"], load_phase="read")
    unavailable_one = replace(silent, index=[unavailable(SILENT)])
    served = replace(silent, index=[READY])
    elsewhere = replace(silent, directories=["/one/m"])

    loading, [one], [other], [last] = map(find_all, (silent, unavailable_one, served, elsewhere))

    assert ["not ready: it is being loaded: read", "its repository /two does not answer"] == [
        finding.text for finding in loading
    ]
    assert "not ready: its repository /two does not answer" == one.text
    assert "does not answer" not in other.text + last.text


def test_a_model_that_lies_in_two_repositories_is_told_with_both() -> None:
    places = ["/one/m", "/two/m"]

    finding = find_all(Facts("m", index=[unavailable(because("odd"))], directories=places))[0]

    assert finding.text.endswith(": /one/m and /two/m")


def first(facts: Facts) -> Finding:
    return find_all(facts)[0]


SIGKILL = because("killed by SIGKILL")
SIGSEGV = Reason.of(Kind.CRASHED, "killed by SIGSEGV", signal="SIGSEGV")
OUT_OF_MEMORY = Reason.of(Kind.OUT_OF_MEMORY, "killed by SIGKILL, by the kernel: out of memory")
LATE = Reason.of(Kind.LOAD_TIMEOUT, "it took long", limit_s=1.0)
GIVEN_UP = Reason.of(
    Kind.GIVEN_UP,
    "instance 'm_0': exited with status 4 (given up after 6 deaths)",
    because("exited with status 4"),
    **{"instance": "m_0", "deaths": 6, "retry_after_s": 0.0},
)
TRIED_AGAIN = GIVEN_UP._replace(values={**GIVEN_UP.values, "retry_after_s": 30.0})
BROKEN = {"python": "/e/bin/python", "problem": "Python runtime state: core initialized"}
#: What is said, and in part; one of each kind and of the words of models at least.
REASONS: list[tuple[Reason, str]] = [
    (raised("ModuleNotFoundError", "No module named 'x'"), "cannot import 'x'"),
    (
        raised("OSError", "libgomp.so.1: cannot open shared object file: No such file"),
        "a library of the system is missing: libgomp.so.1",
    ),
    (raised("ImportError", "cannot import name 'a' from 'b'"), "an import fails: ImportError"),
    (raised("SyntaxError", "invalid syntax (model.py, line 4)"), "its code cannot be read"),
    (raised("ValueError", "bad"), "it raises ValueError: bad (model.py, line 8, in initialize)"),
    (raised("ValueError", "{x} exited with status 3"), "it raises ValueError: {x} exited with"),
    (raised("OutOfMemoryError", "CUDA out of memory."), "the memory of the GPU"),
    (raised("BdbQuit", "<EMPTY MESSAGE>"), "at a breakpoint() (model.py, line 8, in initialize), "),
    (because("The model let go of a request without a response to it."), "neither returned a"),
    (raised("MemoryError", "no room"), "it has no memory left: MemoryError: no room"),
    (raised("PermissionError", "[Errno 13] Permission denied: '/d'"), "it may not: [Errno 13]"),
    (raised("OSError", "[Errno 24] Too many open files: '/x'"), "no file descriptors left"),
    (ended(SIGSEGV, f"Segmentation fault{AT}"), "native code, killed by SIGSEGV: Segmentation"),
    (ended(because("exited with status 1"), "No module named 'zmq'"), "cannot import 'zmq'"),
    (ended(LATE, f"Aborted{AT}"), "max_load_seconds, 1 s (model.py"),
    (OUT_OF_MEMORY, "the kernel has killed it"),
    (SIGKILL, "somebody has killed it (SIGKILL)"),
    (because("exited with status 3"), "its process ends itself, with status 3"),
    (Reason.of(Kind.STUB_LOST, "not healthy", SIGKILL, instance="m_0"), "somebody has killed"),
    (Reason.of(Kind.OVER_MEMORY_QUOTA, "it used 300", limit=200), "its quota: max_memory_bytes is"),
    (GIVEN_UP, "given up after 6 deaths in a row: its process ends itself"),
    (TRIED_AGAIN, "given up after 6 deaths in a row, tried again every 30 s: its process ends"),
    (Reason.of(Kind.ENVIRONMENT_MISSING, "no", path="/no/such.tar.gz"), "environment does not"),
    (
        Reason.of(Kind.ENVIRONMENT_FAILED, "no", problem="pip"),
        "its environment cannot be made: pip",
    ),
    (
        Reason.of(Kind.INTERPRETER_MISSING, "PYTHON_EXECUTABLE 'py': no", python="py"),
        "the Python that it names is not here: PYTHON_EXECUTABLE 'py': no",
    ),
    (Reason(Kind.INTERPRETER_BROKEN, BROKEN, "no"), "its Python cannot start: Python runtime"),
    (
        Reason(Kind.INTERPRETER_FORBIDDEN, {**BROKEN, "action": "cannot be run"}, "no"),
        "its Python cannot be run: Python runtime",
    ),
    (Reason.of(Kind.DUPLICATE, "twice"), "two repositories have a model of this name"),
    (
        Reason.of(Kind.DIRECTORY_NAME, "no", configured="n", directory="m"),
        "its config.pbtxt calls it 'n', its directory 'm'",
    ),
    (Reason.of(Kind.NO_VERSION, "none"), "it has no version to serve"),
    (Reason.of(Kind.FILE_MISSING, "no", path="/m/1/model.py"), "its file /m/1/model.py"),
    (Reason.of(Kind.BACKEND_UNKNOWN, "no", backend="x"), "no backend 'x'"),
    (Reason.of(Kind.GPU_MISSING, "no"), "asks for a GPU"),
    (Reason.of(Kind.TOO_FEW_DESCRIPTORS, "9 of 8", limit=8), "too few file descriptors"),
    (
        Reason.of(Kind.CONFIG_UNREADABLE, "no", path="c", line=5, detail="no field named 'x'"),
        "config.pbtxt, line 5: no field named 'x'",
    ),
    (
        Reason.of(Kind.CONFIG_WRONG, "Invalid argument: dims must not be 0", path="", line=0),
        "its configuration is wrong: Invalid argument: dims must not be 0",
    ),
    (because("model 'm' asks for it in its initialize and would wait for itself"), "waits for it"),
    (Reason.of(Kind.UNLOADED, "unloaded"), "an operator or a client has unloaded it"),
    (Reason.of(Kind.AWAITS_REQUEST, "not loaded"), "it sleeps"),
    (Reason.of(Kind.IDLE, "not loaded", idle_s=60), "it was unloaded after 60 s"),
    (Reason.of(Kind.EVICTED, "not loaded", purpose="to make room for 'n'"), "it was evicted"),
    (Reason.of(Kind.DRAINING, "draining"), "it is drained"),
    (because("a reason that nobody has seen"), "not ready: a reason that nobody has seen"),
]


@pytest.mark.row("L12")
@pytest.mark.parametrize(("reason", "cause"), REASONS)
def test_each_reason_of_the_server_is_explained(reason: Reason, cause: str) -> None:
    finding = first(Facts("m", index=[unavailable(reason)]))

    assert finding.text.startswith("not ready: ")
    assert cause in finding.text
    assert finding.advice
    assert all(
        command.split()[0] in ("zmqtriton-ctl", "nvidia-smi") for command in finding.commands
    )
    assert finding.commands


@pytest.mark.row("L12")
@pytest.mark.parametrize("kind", Kind)
def test_each_kind_of_reason_has_a_row_made_of_its_values(kind: Kind) -> None:
    values = {name: 7 if name.endswith(("_s", "limit", "deaths")) else "7" for name in kind.values}
    cause = Reason.of(Kind.OTHER, "the cause")

    explanation = explain_reason("m", Reason.of(kind, "the text", cause, **values))

    assert kind in ROWS
    assert explanation.text
    assert explanation.advice
    assert explanation.commands


def test_an_ensemble_names_its_member_and_why_that_is_not_ready() -> None:
    unknown = Reason.of(Kind.NOT_FOUND, "unknown", model="member", suggestion="members")
    lost = Reason.of(Kind.MEMBER_NOT_LOADED, "lost", unknown, member="member")
    ensemble = unavailable(lost)
    member = unavailable(raised("OSError", "gone"), "member")

    finding = first(Facts("m", index=[ensemble, member]))
    missing = first(Facts("m", index=[ensemble]))
    late = first(Facts("m", index=[ensemble, {**READY, "name": "member"}]))

    assert "not ready: its member 'member' is not ready: it raises OSError: gone" in finding.text
    assert "zmqtriton-ctl explain member" == finding.commands[0]
    assert "its member 'member' does not exist; did you mean 'members'?" in missing.text
    assert "it is now" in late.text


def test_names_and_versions_that_nobody_has_get_a_proposal() -> None:
    index = [READY, {**READY, "name": "resnet"}]

    misspelt = first(Facts("resnt", index=index))
    version = first(Facts("m", 7, index=index))

    assert "there is no such model; did you mean 'resnet'?" == misspelt.text
    assert ("zmqtriton-ctl explain resnet",) == misspelt.commands
    assert "there is no version 7; known: 1" == version.text


def test_a_model_that_was_never_loaded_and_one_that_still_loads() -> None:
    loading = {"name": "m", "version": "1", "state": "LOADING"}
    status = {"processes": [stub("LOADING", started_s=1000.0)]}
    building = {"processes": [{"role": "environment", "state": "preparing requirements.txt"}]}

    assert "nobody has loaded it" in first(Facts("m", index=[{"name": "m"}])).text
    hanging = first(Facts("m", index=[loading], status=status, now_s=1100.0))
    assert "still loading, since 1m40s, and may hang" in hanging.text
    assert ("zmqtriton-ctl stacks m",) == hanging.commands
    closed = first(Facts("m", index=[loading], status={**status, "is_listening": False}))
    assert "no port is open until then, so no model serves clients" in closed.text
    assert ("zmqtriton-ctl stacks m", "zmqtriton-ctl restart m") == closed.commands
    assert "preparing requirements" in first(Facts("m", index=[loading], status=building)).text
    assert "waits for its turn" in first(Facts("m", index=[loading])).text


def test_a_failed_reload_is_told_of_a_model_that_still_serves() -> None:
    cause = raised("ValueError", "bad")
    reason = Reason.of(Kind.LAST_LOAD_FAILED, f"still served: {cause.text}", cause)

    finding = first(Facts("m", index=[{**READY, "why": reason.document()}]))

    assert "ready, but the last load failed, the earlier version serves: it raises" in finding.text


def test_instances_that_have_died_are_told_with_their_reasons() -> None:
    end = {"last_reason": OUT_OF_MEMORY.text, "why": OUT_OF_MEMORY.document()}
    died = stub("BACKOFF", restarts=2, **end)

    findings = find_all(Facts("m", index=[READY], status={"processes": [died, stub()]}))

    assert "m_0 has died and waits for its restart: the kernel has killed it" in findings[0].text
    assert "1 of 2 instances are ready, others are BACKOFF" == findings[1].text


@pytest.mark.parametrize("reason", [SIGKILL, OUT_OF_MEMORY])
def test_an_instance_that_was_killed_and_is_back_need_not_be_restarted(reason: Reason) -> None:
    end = {"last_reason": reason.text, "why": reason.document()}

    for state, needs_restart in (("READY", False), ("FAILED", True)):
        died = stub(state, restarts=1, **end)
        finding = first(Facts("m", index=[READY], status={"processes": [died, stub()]}))

        assert needs_restart == ("zmqtriton-ctl reload m --force" in finding.commands)
        assert "zmqtriton-ctl restart m" not in finding.commands


def test_of_requests_that_fail_those_of_the_last_minute_are_told() -> None:
    status = {"counts": [counts(failed=40, faults=40, succeeded=960)]}
    columns = {"requests_per_s": [0.0, 0.4], "failures_per_s": [0.2, 1.8]}
    minute = {"interval_s": 5.0, "models": {"m:1": columns, "m:2": columns}}
    facts = Facts("m", index=[READY], status=status, last_minute=minute)
    none = {key: [0.0, 0.0] for key in columns}

    of_all, of_one = first(facts), first(replace(facts, version=1))
    quiet = first(replace(facts, last_minute={"interval_s": 5.0, "models": {"m:1": none}}))

    assert "40 of 1000 requests failed, 20 of 24 in the last minute" in of_all.text
    assert "40 of 1000 requests failed, 10 of 12 in the last minute" in of_one.text
    assert "40 of 1000 requests failed" in quiet.text
    assert "minute" not in quiet.text


LONG_BACK = [{"text": f"{FAILED}KeyError: 'x'", "time_s": 1000.0}]


@pytest.mark.parametrize(
    ("status", "log"),
    [
        ({"counts": [counts(failed=2, faults=2, succeeded=300)]}, LONG_BACK),
        ({"counts": [counts(failed=2, refusals={"max_queue_size": 2}, succeeded=300)]}, []),
        ({"processes": [stub(started_s=1000.0, last_reason=SIGKILL.text)]}, []),
    ],
)
def test_an_overview_leaves_out_what_is_over(status: Any, log: Any) -> None:
    facts = Facts("m", index=[READY], status=status, log=log, now_s=2000.0)

    assert "nothing is wrong" in first(replace(facts, is_overview=True)).text
    assert "nothing is wrong" not in first(facts).text
    soon = replace(facts, is_overview=True, now_s=1010.0)
    if "max_queue_size" not in str(status):
        assert "nothing is wrong" not in first(soon).text


def test_a_full_queue_a_quota_and_a_deadlock_are_told() -> None:
    full = {"counts": [counts(failed=4, refusals={"max_queue_size": 4})], "processes": [stub()]}
    pace = {
        "counts": [counts(pending=3, unanswered=4)],
        "quotas": [
            {"model": "m", "quota": "max_executions_per_second", "limit": 2, "exceeded": 0},
            {"model": "m", "quota": "max_segment_bytes", "limit": 20, "exceeded": 1},
            {"model": "m", "quota": "max_payload_bytes", "limit": 30, "exceeded": 0},
            {"model": "m", "quota": "max_memory_bytes", "limit": 40, "exceeded": 2},
        ],
    }
    log = [{"text": f"{FAILED}BLS calls would deadlock: m -> m"}]

    assert (
        "4 of 4 requests refused because it was full"
        in first(Facts("m", index=[READY], status=full)).text
    )
    held, exceeded = find_all(Facts("m", index=[READY], status=pace))
    assert "3 requests in its queue, max_executions_per_second is 2" in held.text
    assert "max_segment_bytes (20) was exceeded 1 time" in exceeded.text
    assert "deadlock" in first(Facts("m", index=[READY], status={}, log=log)).text


def steps_of(*models: str) -> dict[str, Any]:
    """Return the configuration of an ensemble."""
    return {"ensemble_scheduling": {"step": [{"model_name": model} for model in models]}}


def test_what_stands_still_is_told_with_its_place() -> None:
    stacks = [
        "Current thread 0x1 (most recent call first):",
        '  File "/r/m/1/model.py", line 9 in execute',
        '  File "/s/zmqtriton_stub/model.py", line 106 in execute',
    ]
    quota = {"model": "m", "quota": "max_segment_bytes", "limit": 20, "exceeded": 0}
    hanging = {"counts": [counts(unanswered=2, pending=1)], "quotas": [quota]}
    hangs = Facts("m", index=[READY], status=hanging, later=hanging, stacks={"m_0": stacks})
    loading = {"name": "m", "version": "1", "state": "LOADING"}
    loads = Facts(
        "m",
        index=[loading],
        status={"processes": [stub("LOADING", started_s=7.0)]},
        stacks={"m_0": stacks},
        now_s=9.0,
    )

    assert "it hangs or is slow (model.py, line 9, in execute): 2 requests" in first(hangs).text
    assert "it is still loading (model.py, line 9, in execute), since 2s" in first(loads).text
    assert hangs.is_stuck
    assert loads.is_stuck


def test_a_lost_broker_and_a_stopping_server_are_told() -> None:
    status = {"server": {"ready": "stopping; 0 of 1"}, "counts": None}

    stopping, broker = find_all(Facts("m", index=[READY], status=status))

    assert "the server is stopping" == stopping.text
    assert "the broker has not answered" in broker.text


def test_after_an_aborted_canary_nothing_is_wrong_with_its_version() -> None:
    canary = {"model": "m", "stable": 1, "canary": 2, "phase": "ABORTED", "weight": 10.0}
    status = {"processes": [stub()], "canaries": {"models": [canary]}}
    unloaded = {**unavailable(Reason.of(Kind.UNLOADED, "unloaded")), "version": "2"}
    log = [{"text": f"{FAILED}ValueError: bad", "version": version} for version in (1, 2)]

    well = Facts("m", index=[READY, unloaded], status=status, log=log[1:])
    failing = replace(well, log=log)
    earlier = replace(well, status={**status, "canaries": {"models": []}})

    assert "nothing is wrong" in first(well).text
    assert "it raises ValueError: bad" in first(failing).text
    assert "nothing is wrong" in first(earlier).text
    chosen = first(replace(well, version=2))
    assert "not ready: it was unloaded, and another version serves" == chosen.text


def test_code_that_differs_from_its_configuration_is_told_once() -> None:
    stubs = [stub(mismatches=["sent 'Z'"]), stub(mismatches=["sent 'Z'", "sent 'W'"])]

    findings = find_all(Facts("m", index=[READY], status={"processes": stubs}))

    assert ["its code sent 'Z'", "its code sent 'W'"] == [finding.text for finding in findings]


def test_a_check_adds_only_what_the_server_has_not_said() -> None:
    problems = [
        Finding(f"no field named '{name}'", path="config.pbtxt", line=line)
        for line, name in ((1, "a"), (2, "b"))
    ]
    facts = Facts("m", index=[unavailable(because("no field named 'a'"))], problems=problems)

    _, added = find_all(facts)

    assert "a check also finds: no field named 'b' (config.pbtxt:2)" == added.text


def test_of_a_model_that_is_well_its_counts_are_told() -> None:
    row = counts(succeeded=3, executions=3, failed=1, failures={"CANCELED": 1, "BACKEND": 0})
    findings = find_all(Facts("m", index=[READY], status={"processes": [stub()], "counts": [row]}))

    text = "ready, 1 of 1 instance ready, 3 requests answered, 1 canceled: nothing is wrong"
    assert [text] == [finding.text for finding in findings]


def test_a_model_that_sleeps_and_its_memory_on_gpus_are_told() -> None:
    gpus = [{"gpu": 1, "budget_bytes": 130 << 20, "used_bytes": 120 << 20}]
    rows = [{"model": "m", "gpu_bytes": {"1": 60 << 20}}, {"model": "n", "gpu_bytes": {"1": 5}}]
    status = {"asleep_s": {"m": 61.0}, "on_demand": {"models": rows, "gpus": gpus}}

    *_, asleep, on_gpu = find_all(Facts("m", index=[READY], status=status))

    assert "it has slept for 1m01s, without most of its memory" == asleep.text
    assert ("zmqtriton-ctl wake m",) == asleep.commands
    assert "it has 60 MiB on GPU 1, where models have 120 MiB of 130 MiB" == on_gpu.text


#: A busy machine takes its time.
LONG_S = 60.0


@pytest.mark.slow
def test_directories_that_can_be_read_are_told(tmp_path: Path) -> None:
    directories = Directories([str(tmp_path), str(MODELS_DIRECTORY)])

    assert ([str(MODELS_DIRECTORY / "add_sub")], []) == directories.check("add_sub", LONG_S)
    assert [] == directories.silent


@pytest.mark.slow
def test_errors_in_them_are_told(tmp_path: Path) -> None:
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong/config.pbtxt").write_text("max_batch_size: one")

    places, problems = Directories([str(tmp_path)]).check("wrong", LONG_S)

    assert [f"{tmp_path}/wrong"] == places
    assert f"{tmp_path}/wrong/config.pbtxt:1:17" == problems[0].place


@pytest.mark.slow
def test_nobody_waits_twice_for_a_file_system_that_does_not_answer(tmp_path: Path) -> None:
    shutil.copytree(MODELS_DIRECTORY / "add_sub", tmp_path / "source" / "add_sub")
    with SlowFiles(tmp_path / "source", tmp_path / "slow") as slow:
        slow.hold()
        directories = Directories([str(slow.place)])

        assert [([], []), ([], [])] == [directories.check("add_sub", 2.0) for _ in range(2)]
        assert [str(slow.place)] == directories.silent


_LOOP = [
    '  File "/s/zmqtriton_stub/execution/executions.py", line 126 in begin',
    '  File "/s/zmqtriton_stub/loop.py", line 70 in run',
]
_CALL = ['  File "/s/zmqtriton_stub/model.py", line 106 in execute', *_LOOP]
_EXECUTE = '  File "/r/m/1/model.py", line 9 in execute'
_ASYNCIO = [
    '  File "/usr/lib/python3.11/asyncio/base_events.py", line 1919 in _run_once',
    '  File "/usr/lib/python3.11/asyncio/base_events.py", line 608 in run_forever',
]
_FLUSHER = [
    "Thread 0x00007f01 (most recent call first):",
    '  File "/usr/lib/python3.11/threading.py", line 320 in wait',
    '  File "/s/zmqtriton_stub/process.py", line 20 in flush',
    '  File "/usr/lib/python3.11/threading.py", line 982 in run',
]
_CURRENT = "Current thread 0x00007f02 (most recent call first):"


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ([_EXECUTE, *_CALL], " (model.py, line 9, in execute)"),
        # its own line that has called a library, and a module of its own beside it
        (
            ['  File "/e/site-packages/requests/api.py", line 59 in get', _EXECUTE, *_CALL],
            " (model.py, line 9, in execute)",
        ),
        (
            ['  File "/r/m/1/store.py", line 3 in read', _EXECUTE, *_CALL],
            " (store.py, line 3, in read)",
        ),
        # it waits for another model, in our code
        (
            [
                '  File "/e/site-packages/zmq/sugar/poll.py", line 106 in poll',
                '  File "/s/zmqtriton_stub/broker/bls_client.py", line 88 in exec',
                _EXECUTE,
                *_CALL,
            ],
            " (model.py, line 9, in execute)",
        ),
        # while it is imported
        (
            [
                '  File "/r/m/1/model.py", line 4 in <module>',
                '  File "<frozen importlib._bootstrap_external>", line 940 in exec_module',
                '  File "/usr/lib/python3.11/importlib/__init__.py", line 126 in import_module',
                *_CALL,
            ],
            " (model.py, line 4)",
        ),
        # a coroutine that blocks, and one that waits for it knows not what
        ([_EXECUTE, *_ASYNCIO, *_CALL], " (model.py, line 9, in execute)"),
        (['  File "/usr/lib/python3.11/selectors.py", line 468 in select', *_ASYNCIO, *_CALL], ""),
        # it has nothing to do
        (['  File "/e/site-packages/zmq/sugar/poll.py", line 106 in poll', *_LOOP], ""),
        ([], ""),
    ],
)
def test_the_place_is_the_innermost_line_of_the_models_own_code(
    frames: list[str], place: str
) -> None:
    assert place == find_place([*_FLUSHER, "", _CURRENT, *frames])
    assert place == find_place([_CURRENT, *frames, *_FLUSHER])
