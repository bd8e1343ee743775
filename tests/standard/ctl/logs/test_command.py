"""Moments on the command line."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from zmqtriton_standard.ctl.logs import find_previous, parse_moment

NOW_S = datetime(2026, 11, 22, 3, 20, 30).timestamp()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", datetime(2026, 11, 22, 3, 19)),
        ("1h30m", datetime(2026, 11, 22, 1, 50, 30)),
        ("0.5h", datetime(2026, 11, 22, 2, 50, 30)),
        ("2d", datetime(2026, 11, 20, 3, 20, 30)),
        ("03:15", datetime(2026, 11, 22, 3, 15)),
        ("3:15:10", datetime(2026, 11, 22, 3, 15, 10)),
        ("23:50", datetime(2026, 11, 21, 23, 50)),
        ("2026-11-21 23:50", datetime(2026, 11, 21, 23, 50)),
        ("2026-11-21T23:50:07", datetime(2026, 11, 21, 23, 50, 7)),
    ],
)
def test_a_moment_is_a_time_or_how_long_ago(text: str, moment: datetime) -> None:
    assert moment.timestamp() == parse_moment(text, NOW_S)


@pytest.mark.parametrize("text", ["", "10", "ten minutes", "25:00", "10x", "10m later"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_moment(text, NOW_S)


# ------------------------------------------------------------------- previous


def stub(
    pid: int, instance: str = "m_0_0", *, last_pid: int = 0, last_reason: str = ""
) -> dict[str, Any]:
    names = {"role": "stub", "model": instance[0], "instance": instance}
    return {**names, "pid": pid, "last_pid": last_pid, "last_reason": last_reason}


def kept(pid: int, *texts: str, instance: str = "m_0_0") -> dict[str, Any]:
    lines = [{"text": text} for text in texts]
    return {"model": instance[0], "instance": instance, "pid": pid, "lines": lines}


def find(
    *stubs: dict[str, Any], lines: list[dict[str, Any]], model: str = "", instance: str = ""
) -> list[tuple[int, str, list[str]]]:
    processes = find_previous(model, instance, {"processes": [{"role": "broker"}, *stubs]}, lines)
    return [(each.pid, each.reason, [line["text"] for line in each.lines]) for each in processes]


def test_the_last_dead_process_is_told_with_its_reason() -> None:
    died = stub(13, last_pid=12, last_reason="killed by SIGSEGV")

    rows = find(died, lines=[kept(11, "old"), kept(12, "last words"), kept(13, "of now")])

    assert [(12, "killed by SIGSEGV", ["last words"])] == rows


def test_a_process_that_wrote_nothing_comes_after_the_last_one_that_did() -> None:
    died = stub(0, last_pid=12, last_reason="exited with status 1")

    rows = find(died, lines=[kept(11, "last words")])

    assert [(11, "", ["last words"]), (12, "exited with status 1", [])] == rows


def test_only_the_model_and_the_instance_that_are_meant_are_told() -> None:
    stubs = [
        stub(0, name, last_pid=pid, last_reason="why")
        for name, pid in (("m_0_0", 1), ("m_0_1", 2), ("n_0_0", 3))
    ]
    lines = [kept(3, "n", instance="n_0_0")]

    assert [1, 2] == [pid for pid, _, _ in find(*stubs, lines=lines, model="m")]
    assert [2] == [pid for pid, _, _ in find(*stubs, lines=lines, instance="m_0_1")]
    assert [(3, "why", ["n"])] == find(*stubs, lines=lines, model="n")


def test_of_an_instance_that_is_gone_the_last_lines_are_told() -> None:
    assert [(11, "", ["last words"])] == find(lines=[kept(11, "last words")])
    assert [] == find(stub(11), lines=[kept(11, "of now")])
