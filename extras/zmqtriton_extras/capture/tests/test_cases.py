"""Captured requests as cases of a unit test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqtriton.main import main
from zmqtriton_extras.capture.cases import captured, run_new_test
from zmqtriton_extras.capture.records import LINES
from zmqtriton_extras.capture.tests.test_segments import capture, tensor, written
from zmqtriton_floor.errors import InvalidArgument, ZmqTritonError

X = {"name": "X", "datatype": "FP32", "shape": [2], "data": [1.0, 2.0]}


class Doubling:
    """A model that doubles X, or fails."""

    def __init__(self, plus: float = 0.0, error: ZmqTritonError | None = None) -> None:
        self._plus = plus
        self._error = error

    def stream(self, request: Any) -> Iterator[dict[str, Any]]:
        if self._error is not None:
            raise self._error
        yield {"Y": request.inputs["X"] * 2 + np.float32(self._plus)}


def write(directory: Path, **more: Any) -> None:
    record = {
        "id": "r1",
        "model": "m-1",
        "request": {"inputs": [X], "parameters": {"p": 1}},
        "responses": [{"outputs": [{**X, "name": "Y", "data": [2.0, 4.0]}]}],
        "error": None,
        **more,
    }
    directory.mkdir(exist_ok=True)
    with open(directory / LINES, "a") as file:
        file.write(json.dumps(record) + "\n")


def test_a_case_passes_with_the_captured_answer_and_names_the_tensor_else(tmp_path: Path) -> None:
    write(tmp_path)
    [case] = captured(tmp_path)

    assert case.request().parameters == {"p": 1}
    case.check(Doubling())
    case.check(Doubling(0.01), tolerance=0.1)
    with pytest.raises(AssertionError, match=r"'Y' differs in 2 of 2 elements, by up to 0\.01"):
        case.check(Doubling(0.01))
    with pytest.raises(InvalidArgument):
        case.check(Doubling(error=InvalidArgument("no")))


def test_a_captured_error_is_expected_by_its_code(tmp_path: Path) -> None:
    write(tmp_path, error={"code": "INVALID_ARG", "text": "no"}, responses=[])
    [case] = captured(tmp_path)

    case.check(Doubling(error=InvalidArgument("in other words")))
    with pytest.raises(AssertionError, match="it succeeds; captured was INVALID_ARG: no"):
        case.check(Doubling())


@pytest.mark.extra("authoring")
def test_the_command_writes_a_test_with_its_cases_and_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "captures"
    write(source)
    write(source, id="r2", request={"inputs": [{**X, "data": [0.0, 0.0]}]})
    write(source, id="other", model="other")
    write(source, id="in a sequence", request={"inputs": [X], "parameters": {"sequence_id": 1}})
    write(source, id="secret", request={"inputs": [{"name": "X", "omitted": True}]})
    write(source, id="left", error={"code": "CANCELLED", "text": "left"})
    monkeypatch.chdir(tmp_path)
    words = [f"--from={source}", "--model=m-1"]

    assert run_new_test([*words, "--count=5"]) == 0
    assert "2 cases" in capsys.readouterr().out
    assert [case.id for case in captured(tmp_path / "m_1_captured")] == ["r1", "r2"]
    compile((tmp_path / "test_m_1_captured.py").read_text(), "test", "exec")
    assert main(["new", "test", *words]) == 1
    assert "File exists" in capsys.readouterr().err
    assert run_new_test([f"--from={source}", "--model=none"]) == 1
    assert "has no requests to 'none' for a test" in capsys.readouterr().err


def test_cases_with_what_no_json_has_are_valid_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN and the infinities lie in files of numpy, and are told apart."""

    def reject(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 1.5], np.float32)
    one = capture(tensor("X", "FP32", odd))
    answer = one.responses[0]._replace(tensors=[tensor("Y", "FP32", odd * 2)])
    written(tmp_path / "captures", one._replace(responses=[answer]))
    monkeypatch.chdir(tmp_path)

    assert run_new_test([f"--from={tmp_path / 'captures'}", "--model=m"]) == 0

    for line in (tmp_path / "m_captured" / LINES).read_text().splitlines():
        json.loads(line, parse_constant=reject)
    [case] = captured(tmp_path / "m_captured")
    assert odd.tobytes() == case.request().inputs["X"].tobytes()
    case.check(Doubling())
    with pytest.raises(AssertionError, match="'Y' differs in"):
        case.check(Doubling(1.0), tolerance=1e-6)
