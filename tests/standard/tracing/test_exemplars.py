"""Exemplars of traces, and the socket at which the page of metrics reads them."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_standard.tracing.exemplars import Exemplars, ExemplarSocket
from zmqtriton_standard.tracing.gathering import RequestSpan

MS = 10**6
TRACE = "0af7651916cd43dd8448eb211c80319c"


def span(number: int, *children: RequestSpan, ms: int = 0, **fields: Any) -> RequestSpan:
    marks = {"REQUEST_START": 5 * MS, "REQUEST_END": (5 + ms) * MS} if ms else {"HTTP_RECV": 1}
    context = f"00-{TRACE}-{number:016x}-01"
    return RequestSpan(context, marks=marks, children=list(children), **fields)


def test_each_bucket_has_the_last_request_of_a_version_wherever_it_stands_in_a_trace() -> None:
    exemplars = Exemplars()
    below = span(3, ms=700, model="b", version=2)

    exemplars.add(span(1, span(2, below, ms=800, model="a", version=1)), 10**9)
    exemplars.add(span(4, span(5, ms=900, model="a", version=1)), 10**9)
    exemplars.add(span(6, span(7, ms=20, model="a", version=1)), 10**9)

    assert [
        ("a", 1, 0.9, TRACE, f"{5:016x}", 1.905),
        ("a", 1, 0.02, TRACE, f"{7:016x}", 1.025),
        ("b", 2, 0.7, TRACE, f"{3:016x}", 1.705),
    ] == exemplars.rows()


def test_a_request_that_failed_or_has_no_times_is_none() -> None:
    exemplars = Exemplars()

    exemplars.add(span(1, span(2, ms=5, model="a", version=1, error="no")), 0)
    exemplars.add(span(1, model="a", version=1), 0)

    assert [] == exemplars.rows()


def test_versions_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zmqtriton_standard.tracing.exemplars._MAX_VERSIONS", 2)
    exemplars = Exemplars()

    for name in ("a", "b", "c"):
        exemplars.add(span(1, ms=5, model=name, version=1), 0)

    assert ["b", "c"] == [row[0] for row in exemplars.rows()]


def test_who_connects_reads_them_once(tmp_path: Path) -> None:
    exemplars = Exemplars()
    exemplars.add(span(1, ms=5, model="a", version=1), 0)
    path = tmp_path / "s"
    path.touch()  # an earlier process's
    served = ExemplarSocket(str(path), exemplars)

    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as gone:
        one.connect(str(path))
        gone.connect(str(path))
        gone.close()
        served.answer()
        answer = one.makefile().read()
    served.answer()
    served.close()

    assert [list(row) for row in exemplars.rows()] == json.loads(answer)
    assert not path.exists()
