"""Where the time went, by the model's own lines."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from zmqtriton_extras.inspection.command import _print, describe
from zmqtriton_extras.inspection.files import BY_FORM
from zmqtriton_extras.inspection.flame_graph import draw
from zmqtriton_extras.inspection.formats import speedscope
from zmqtriton_extras.inspection.profile import (
    AWAITS,
    PYTHON,
    idle_s,
    lines_of,
    others_of,
    read,
)
from zmqtriton_extras.inspection.tests.documents import FUNCTIONS, MODEL, MS, answer, part
from zmqtriton_floor.errors import InternalError


def test_time_belongs_to_the_innermost_line_of_the_model() -> None:
    lines = lines_of(read(answer(part())))

    first = lines[0]
    assert (MODEL, 12) == (first.frame.file, first.frame.line)
    assert [0.1, 0.5, 0, 0] == pytest.approx(first.seconds)
    assert first.below is not None
    assert "svd" == first.below.function
    assert pytest.approx(0.5) == first.below_s


def test_coroutines_have_the_time_that_they_run_and_are_awaited() -> None:
    seen = read(answer(part()))

    [fetch] = [line for line in lines_of(seen) if "fetch" in line.frame.function]

    assert (0.03, 0.2) == (fetch.seconds[PYTHON], fetch.seconds[AWAITS])
    of_coroutine = [s for s in seen.stacks if s.thread.startswith("coroutine")]
    assert {"coroutine TritonPythonModel.fetch"} == {s.thread for s in of_coroutine}
    assert not any("Handle" in frame.function for s in of_coroutine for frame in s.frames)


def test_a_thread_of_the_model_that_waits_counts_with_what_it_computes() -> None:
    lines = {line.frame.line: line for line in lines_of(read(answer(part())))}

    assert [0.02, 0, 0, 0] == pytest.approx(lines[44].seconds)
    assert [0, 0, 0.05, 0] == pytest.approx(lines[20].seconds), "this one keeps requests waiting"


def test_what_waits_for_requests_is_idle() -> None:
    assert pytest.approx(0.35) == idle_s(read(answer(part())))


def test_instances_are_counted_together() -> None:
    seen = read(answer(part(), part(seconds=3.0)))

    assert (4.0, 200, ("prices_0_0", "prices_0_1")) == (seen.seconds, seen.samples, seen.instances)
    assert pytest.approx(0.2) == lines_of(seen)[0].seconds[PYTHON]


def test_five_lines_tell_where_the_time_went(capsys: pytest.CaptureFixture[str]) -> None:
    _print(read(answer(part())))

    head, columns, first, *rest = capsys.readouterr().out.splitlines()
    assert head == "prices: 1.0 s of prices_0_0, 100 samples; 65% busy, 35% waiting for requests"
    assert "Share\tLine\tFunction\tDoing\tBelow" == columns
    assert "60 %" in first
    assert "1/model.py:12" in first
    assert "C 50 %, Python 10 %" in first
    assert "svd (linalg.py:130) 50 %" in first
    assert rest[-1].startswith("1/model.py:12, or an operator before that call, kept the lock")


def test_programs_get_all_lines() -> None:
    document = json.loads(json.dumps(describe(read(answer(part())))))

    [first, *_] = document["lines"]
    assert (12, 0.1, 0.5) == (first["line"], first["python_seconds"], first["c_seconds"])
    assert "svd" == first["below"]["function"]
    assert 4 == len(document["lines"])
    assert (1.0, 100) == (document["seconds"], document["samples"])
    assert pytest.approx(0.35) == document["idle_seconds"]


def test_an_instance_that_has_failed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(part())
    document["instances"].append({"instance": "prices_0_1", "pid": 2, "error": "'x': it died"})

    _print(read(document))

    printed = capsys.readouterr()
    assert "'x': it died" in printed.err + printed.out


#: A request waits for a lock for half of the time, whose holder sleeps in a thread of the model.
LOCKED = part(times=[[8, "MainThread", 2, 500 * MS, 50], [4, "watcher", 2, 980 * MS, 98]])


def test_if_requests_wait_the_models_other_threads_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = read(answer(LOCKED))

    _print(seen)

    printed = capsys.readouterr().out.splitlines()
    at = printed.index("Other threads that wait; one may hold a lock that a request waits for:")
    assert "Share\tLine\tFunction\tThread" == printed[at + 1]
    assert "98 %\t1/model.py:44\tTritonPythonModel.watch\twatcher" == printed[at + 2]
    [other] = describe(seen)["other_threads"]
    assert ("watcher", MODEL, 44, 0.98) == tuple(other[k] for k in other if k != "function")
    assert "watcher" in {one["name"] for one in json.loads(speedscope(seen))["profiles"]}
    assert b"watcher" in draw(seen)


def test_short_waits_name_no_other_thread(capsys: pytest.CaptureFixture[str]) -> None:
    seen = read(answer(part()))

    _print(seen)

    assert "Other threads" not in capsys.readouterr().out
    assert [] == others_of(seen)


@pytest.mark.slow
def test_a_profile_that_a_model_has_made_is_bounded() -> None:
    chain = [[at - 1, 0] for at in range(200)]
    huge = part(
        nodes=chain,
        functions=[["f" * 100_000, "x" * 100_000, 1, 1, 0]],
        frames=[[0, 1]],
        times=[[199, f"thread {number}" * 1000, 0, MS, 1] for number in range(20_000)],
    )

    seen = read(answer(huge))

    assert 400_000 >= sum(len(stack.frames) for stack in seen.stacks) > 390_000
    assert pytest.approx(20.0) == seen.left_out_s + len(seen.stacks) / 1000
    texts = {text for s in seen.stacks[:10] for f in s.frames for text in (f.function, f.file)}
    assert 512 == max(map(len, texts | {stack.thread for stack in seen.stacks[:10]}))
    assert 10_000 >= draw(seen).count(b'class="frame"')


def test_a_client_sees_no_directory_of_the_server() -> None:
    files = {
        "/secret/models/prices/1/model.py": "1/model.py",
        "/secret/venv/lib/python3.11/site-packages/numpy/linalg.py": "numpy/linalg.py",
        "/usr/lib/python3.11/asyncio/events.py": "asyncio/events.py",
        "/secret/src/stub/zmqtriton_stub/loop.py": "zmqtriton_stub/loop.py",
        "/secret/elsewhere/x.py": "x.py",
        "<frozen importlib._bootstrap>": "<frozen importlib._bootstrap>",
    }
    functions = [["f", file, 1, file.endswith("model.py"), 0] for file in files]
    one = part(
        directories=["/secret/models/prices"],
        functions=functions,
        frames=[[number, 5] for number in range(len(files))],
        nodes=[[number - 1, number] for number in range(len(files))],
        times=[[len(files) - 1, "MainThread", 0, MS, 1]],
        held=len(files) - 1,
    )

    seen = read(answer(one)).without_directories()

    assert [*files.values()] == [frame.file for frame in seen.stacks[0].frames]
    assert seen.stacks[0].is_of_requests
    for file in BY_FORM.values():
        written = file.write(seen)
        text = gzip.decompress(written) if file.end.endswith("gz") else written
        assert b"numpy/linalg.py" in text
        assert b"secret" not in text


@pytest.mark.parametrize("is_table", [True, False])
def test_texts_of_a_model_move_no_terminal(
    is_table: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "f\x1b]0;owned\x07\u202e\n"
    functions = [[f"{evil}{name}", file, *more] for name, file, *more in FUNCTIONS]
    one = part(functions=functions, directories=[], times=LOCKED["times"] if is_table else [])
    held = [[evil, f"/x/{evil}", 1, 0, 0]] * len(FUNCTIONS)

    _print(read(answer(one if is_table else {**one, "functions": held})))

    printed = capsys.readouterr().out
    assert "owned" in printed
    assert not {"\x1b", "\x07", "\u202e"} & set(printed)


ENDLESS = part(nodes=[[0, 0]], times=[[0, "t", 0, 1, 1]])


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {},
        None,
        ENDLESS,
        part(times=[[99, "t", 0, 1, 1]]),
        part(times=[[0, "t", 7, 1, 1]]),
        part(times=[[0, "t", "0", 1, 1]]),
        part(times=[[0, "t", 0, "x", 1]]),
        part(times=5),
        part(functions=[[1]]),
        part(seconds="long"),
        part(seconds=0),
        part(seconds=float("nan")),
        part(seconds=float("inf")),
        part(times=[[0, "t", 0, 10**30, 1]]),
        part(times=[[0, "t", 0, -1, 1]]),
        part(times=[[0, ["t"], 0, 1, 1]]),
        part(frames=[[0, 10**30]]),
        part(functions=[[["long"], "f", 1, 0, 0]] * 7),
    ],
)
def test_what_is_no_profile_is_an_error(wrong: Any) -> None:
    """The code of a model runs in the process that answers."""
    with pytest.raises(InternalError, match="no profile"):
        read(answer(wrong))
