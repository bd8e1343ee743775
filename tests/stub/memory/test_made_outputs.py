"""Outputs that a model makes where their receivers read them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.stub.fakes import FakeLink, body
from tests.stub.supervisor import FakeSupervisor
from zmqtriton_floor import wire
from zmqtriton_stub.api import tensor
from zmqtriton_stub.api.inference import InferenceResponse
from zmqtriton_stub.api.tensor import Tensor as PbTensor

MADE = 50_000


@pytest.fixture
def link(world: FakeSupervisor, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLink]:
    link = FakeLink()
    link.instance.memory = world.memory
    monkeypatch.setattr(tensor, "_make_bytes", world.memory.outputs.make)
    yield link
    gc.collect()


def _made(value: float = 1.0) -> PbTensor:
    output = PbTensor.empty("OUT", (2, MADE // 2), np.float32)
    output.as_numpy()[:] = value
    return output


def _send(link: FakeLink, *tensors: PbTensor) -> tuple[wire.Outcome, list[Any]]:
    link.add_request(body()).send(InferenceResponse(list(tensors)), wire.FINAL)
    message, [data] = link.messages[-1]
    [outcome] = message.outcomes
    return outcome, [row.data for row in wire.decode_response(data).outputs]


def test_parts_of_it_are_sent_as_they_are_too(world: FakeSupervisor, link: FakeLink) -> None:
    array = _made().as_numpy()
    array[1] = 3

    outcome, references = _send(link, PbTensor("A", array[0]), PbTensor("B", array[1]))

    assert [{1.0}, {3.0}] == [set(np.frombuffer(world.read(one), np.float32)) for one in references]
    assert 1 == world.memory.arena.used
    assert (2, 1) == (len(outcome.blocks), len(set(outcome.blocks)))


def test_what_lies_beside_it_is_copied(world: FakeSupervisor, link: FakeLink) -> None:
    output = _made()

    _, [reference] = _send(link, PbTensor("OUT", output.as_numpy() + 1))

    assert {2.0} == set(np.frombuffer(world.read(reference), np.float32))
    assert 2 == world.memory.arena.used


@pytest.mark.parametrize("why", ["small", "strings", "no memory", "no instance"])
def test_other_tensors_are_arrays_like_any(
    world: FakeSupervisor, link: FakeLink, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    dtype: Any = np.object_ if why == "strings" else np.int16
    if why == "no memory":
        world.refusal = "There is none."
    elif why == "no instance":
        # as the module is before a stub gives it a memory
        monkeypatch.setattr(tensor, "_make_bytes", tensor._nowhere)

    output = PbTensor.empty("OUT", [8 if why == "small" else MADE], dtype)

    assert 0 == world.memory.arena.used
    assert dtype == output.as_numpy().dtype
    assert ("OUT", [8 if why == "small" else MADE]) == (output.name(), output.shape())


def test_a_shape_below_zero_is_refused() -> None:
    assert [0, 4] == PbTensor.empty("OUT", (0, 4), np.float32).shape()
    with pytest.raises(ValueError, match="negative dimensions"):
        PbTensor.empty("OUT", (-1, 4), np.float32)
