"""Which variables models get."""

from __future__ import annotations

import pytest

from zmqtriton.supervisor.machine.model_environment import withheld


@pytest.mark.parametrize(
    "name", ["PATH", "LC_ALL", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PYTHONPATH", "HF_HOME"]
)
def test_what_libraries_need_passes(name: str) -> None:
    assert [] == withheld({name: "x"}, ())


@pytest.mark.parametrize(
    "name", ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "DATABASE_URL", "https_proxy", "PATHS", "XPATH"]
)
def test_anything_else_does_not(name: str) -> None:
    assert [name] == withheld({name: "x", "PATH": "y"}, ())


@pytest.mark.parametrize(
    ("named", "left"),
    [(("B",), ["A1", "A2"]), (("A*",), ["B"]), (("*",), []), (("A1", "B"), ["A2"])],
)
def test_what_is_named_passes(named: tuple[str, ...], left: list[str]) -> None:
    assert left == withheld(dict.fromkeys(("B", "A2", "A1"), "x"), named)
