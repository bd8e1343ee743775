"""Builds of Python on which the server says that it does not run."""

from __future__ import annotations

import sys
import sysconfig

import pytest

from zmqtriton.options import parse
from zmqtriton.supervisor.machine.fitness import judging


def test_a_free_threaded_build_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse(["--model-repository=/m"])
    judging.check(options)
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get)

    with pytest.raises(OSError, match="is not supported") as raised:
        judging.check(options)

    sentence = f"{sys.executable} is a free-threaded build of Python, which is not supported"
    assert f"{sentence}\n  {judging.PYTHON_ADVICE}" == str(raised.value)


@pytest.mark.parametrize("value", [0, None], ids=["the usual build", "Python 3.12"])
def test_others_are_taken(monkeypatch: pytest.MonkeyPatch, value: object) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": value}.get)

    assert "" == judging.python_problem()
