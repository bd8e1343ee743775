"""Where the time went, by the model's own lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from zmqtriton_extras.inspection.command import _print, describe
from zmqtriton_extras.inspection.profile import AWAITS, PYTHON, idle_s, lines_of, read
from zmqtriton_extras.inspection.tests.documents import MODEL, answer, part
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
    ],
)
def test_what_is_no_profile_is_an_error(wrong: Any) -> None:
    """The code of a model runs in the process that answers."""
    with pytest.raises(InternalError, match="no profile"):
        read(answer(wrong))
