"""Long values are converted in pieces, so that other threads run between them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.functions.backend import kinds
from zmqtriton_extras.functions.backend.kinds import Arrays, MismatchError
from zmqtriton_extras.functions.bodies import has_long_number, read
from zmqtriton_extras.functions.interface import interface_of
from zmqtriton_extras.functions.tests.test_functions import loaded
from zmqtriton_floor import documents


class Recorder:
    """numpy, with the lengths of the lists that it has made arrays of."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def array(self, values: Any, *rest: Any) -> Any:
        self.lengths.append(len(values))
        return np.array(values, *rest)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


@pytest.mark.parametrize(
    ("datatype", "dims", "document"),
    [
        ("FP32", [-1], [float(n) for n in range(10)]),
        ("INT64", [-1, 2], [[n, n + 1] for n in range(5)]),
        ("BYTES", [-1], [str(n) for n in range(10)]),
        ("BOOL", [2, 5], [[True] * 5, [False] * 5]),
    ],
)
def test_an_array_is_made_of_pieces(
    monkeypatch: pytest.MonkeyPatch, datatype: str, dims: list[int], document: Any
) -> None:
    recorder = Recorder()
    monkeypatch.setattr(kinds, "np", recorder)
    monkeypatch.setattr(documents, "STEP", 4)

    array = Arrays(datatype, dims).from_json(document)

    assert document == array.tolist()
    assert [4, 4, 2] == recorder.lengths


@pytest.mark.parametrize(
    ("datatype", "document"),
    [
        ("INT8", [1, 128]),
        ("UINT8", [-1]),
        ("INT32", [1.0]),
        ("INT64", [2**63]),
        ("FP64", [10**400]),
        ("FP32", [True]),
        ("FP32", ["1"]),
        ("FP32", [[1.0]]),
        ("BOOL", [0]),
        ("BYTES", [1]),
        ("FP32", [1.0, None]),
        ("INT8", [1, "a"]),
    ],
)
def test_no_element_becomes_another(datatype: str, document: Any) -> None:
    with pytest.raises(MismatchError, match=f"expected array of {datatype}"):
        Arrays(datatype, [-1]).from_json(document)


def test_numbers_that_are_not_finite_stay() -> None:
    array = Arrays("FP32", [-1]).from_json([float("nan"), float("-inf"), 1])
    assert "[nan, -inf, 1.0]" == str(array.tolist())


def test_a_long_number_is_found_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from zmqtriton_extras.functions import bodies

    monkeypatch.setattr(bodies, "_STEP_BYTES", 32)
    number = b"12345678901234567890"
    assert not has_long_number(b" " * 100 + number[:18] + b"." + number[:18])
    for place in range(80):
        assert has_long_number(b" " * place + number + b",1")


@pytest.mark.parametrize("python", [str, int])
@pytest.mark.parametrize("shape", [(10,), (5, 2), (2, 5), (1, 10), (5, 1, 2)])
def test_lists_are_read_in_pieces(
    monkeypatch: pytest.MonkeyPatch, python: type, shape: tuple[int, ...]
) -> None:
    monkeypatch.setattr(documents, "STEP", 4)
    kind, expected = kinds.Scalars(python, len(shape)), np.arange(10).reshape(shape).tolist()
    if python is str:
        expected = np.array([str(n) for n in range(10)]).reshape(shape).tolist()

    assert expected == kind.decode(kind.encode(expected))


def test_empty_rows_are_empty_lists() -> None:
    assert [[], []] == kinds.Scalars(int, 2).decode(np.empty((2, 0), np.int64))
    assert [] == kinds.Scalars(str, 2).decode(np.empty((0, 3), np.object_))


def test_a_document_is_empty_when_it_has_been_read(tmp_path: Path) -> None:
    source = """
from zmqtriton import model

@model
def caption(x: list[str]) -> list[str]:
    return x
"""
    kept: list[Any] = []
    with loaded(tmp_path, source) as model:
        interface = interface_of(model.config)
        assert interface is not None
        kind = interface.parameters["x"]
        encode = kind.encode

        def keep(value: Any) -> Any:
            kept.append(value)
            return encode(value)

        kind.encode = keep  # type: ignore[method-assign]
        text = json.dumps({"x": ["a"] * 100_000}).encode()
        inputs = read(interface, "application/json", text).inputs

    assert inputs["x"].shape == (100_000,)
    assert len(kept[0]) < 100
