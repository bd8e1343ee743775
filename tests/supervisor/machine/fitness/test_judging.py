"""Lacks of a machine, in words for its operator."""

from __future__ import annotations

import os

import pytest

from zmqtriton.options import parse
from zmqtriton.supervisor.machine.fitness import judging


def test_a_machine_without_proc_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse(["--model-repository=/models"])
    assert not [lack for lack in judging.lacks(options) if "/proc" in lack.text]

    monkeypatch.setattr(os.path, "exists", lambda path: not path.startswith("/proc"))

    first = next(judging.lacks(options))
    assert ("/proc is not mounted", True) == (first.text, first.is_fatal)
