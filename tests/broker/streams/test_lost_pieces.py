"""Whatever dies with a broker, each stream ends in time, and its model learns it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.broker.streams.explore import Exploration
from tests.broker.streams.processes import PIECE_BYTES, Steps, StreamingStub, World
from zmqtriton.broker import sending, service
from zmqtriton_floor import wire
from zmqtriton_frontends.gateway import broker_link
from zmqtriton_frontends.gateway import streams as reading
from zmqtriton_frontends.inference import admission
from zmqtriton_frontends.tensors import payload
from zmqtriton_stub import instance
from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.broker import bls_client
from zmqtriton_stub.execution import streams as sending_streams
from zmqtriton_stub.memory import tensor_memory

pytestmark = pytest.mark.slow

PIECES = 3
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
#: Number of states after which an exploration ends; without deaths those with one model have less.
_MAX_STATES = 500
#: Responses and bytes of a window: two pieces of each size are on their way at most.
_WINDOW, _WINDOW_BYTES = 2, 8192


def piece(number: int, size: str) -> Any:
    array = np.full(PIECE_BYTES[size] // 8, number, np.uint64)
    return pb_utils.InferenceResponse([pb_utils.Tensor("O", array)])


def steps(size: str, stub: StreamingStub, request: Any) -> Steps:
    """Send a piece at each step, but none while the reader is behind, as `admit` and `step` do."""
    sender = request.get_response_sender()
    for number in range(PIECES):
        yield lambda: sender.is_cancelled() or not sender.is_behind()
        if sender.is_cancelled():
            break
        sender.send(piece(number, size))
    sender.send(flags=FINAL)


def sends(size: str, stub: StreamingStub, request: Any) -> Steps:
    """Send a piece at each step, whatever the reader does, as a generator does in the end."""
    sender = request.get_response_sender()
    for number in range(PIECES):
        yield lambda: True
        sender.send(piece(number, size))
    sender.send(flags=FINAL)


def reads(size: str, stub: StreamingStub, request: Any) -> Steps:
    """Read the stream of another model, and send each of its pieces on."""
    sender = request.get_response_sender()
    call = stub.ask("source", np.zeros(1, np.uint64))
    # of the iterator, to know its end before the call would wait
    responses: Any = call._responses
    while not responses._is_finished:
        yield call.has_reply
        response = next(responses)
        if response.has_error():
            sender.send(pb_utils.InferenceResponse(error=response.error()))
        elif response.output_tensors():
            number = int(response.output_tensors()[0].as_numpy()[0])
            sender.send(piece(number, size))
    sender.send(flags=FINAL)


def _world(kind: str, size: str) -> World:
    if kind == "reads":
        programs = {"source": partial(steps, size), "m": partial(reads, size)}
        return World(programs, {}, "m")
    if kind == "joined":
        return World({"source": partial(steps, size)}, {"m": "source"}, "m")
    program = partial({"steps": steps, "sends": sends}[kind], size)
    return World({"m": program}, {}, "m")


KINDS = ("steps", "sends", "reads", "joined")
_cases = pytest.mark.parametrize(("kind", "size"), [(k, s) for k in KINDS for s in PIECE_BYTES])


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let windows be small, and restore what a world changes in modules."""
    monkeypatch.setattr(wire, "STREAM_WINDOW", _WINDOW)
    monkeypatch.setattr(wire, "STREAM_WINDOW_BYTES", _WINDOW_BYTES)
    for module in (reading, bls_client):
        monkeypatch.setattr(module, "_STEP", _WINDOW // 2)
    monkeypatch.setattr(reading, "_STEP_BYTES", _WINDOW_BYTES // 4)
    for name in ("_PATIENCE_S", "_SHARED_PATIENCE_S"):
        monkeypatch.setattr(sending_streams, name, 0.0)
    for module in (tensor_memory, payload, admission):
        monkeypatch.setattr(module, "INLINE_BYTES", 1024)
    changed = [(reading, "time"), (reading, "Reader"), (service, "time"), (sending, "time")]
    changed += [(broker_link, "Dealer"), (broker_link, "monotonic")]
    for module, name in changed:
        monkeypatch.setattr(module, name, vars(module)[name])
    yield
    instance.take_thread(None)


def _walk(kind: str, size: str, deaths: int, number: int) -> None:
    exploration = Exploration(partial(_world, kind, size), PIECES, deaths)
    for seed in range(number):
        exploration.walk(seed)
    assert number == exploration.ends


@_cases
@pytest.mark.parametrize("deaths", [0, 2])
def test_in_orders_by_chance_each_stream_ends(kind: str, size: str, deaths: int) -> None:
    _walk(kind, size, deaths, 20)


@pytest.mark.long("broker/streams/test_lost_pieces.py::test_in_orders_by_chance_each_stream_ends")
@_cases
def test_in_many_orders_by_chance_each_stream_ends(kind: str, size: str) -> None:
    _walk(kind, size, 2, 300)


@pytest.mark.long("broker/streams/test_lost_pieces.py::test_in_orders_by_chance_each_stream_ends")
@pytest.mark.timeout(1200)
@_cases
@pytest.mark.parametrize("deaths", [0, 1])
def test_in_each_order_each_stream_ends(kind: str, size: str, deaths: int) -> None:
    assert Exploration(partial(_world, kind, size), PIECES, deaths, _MAX_STATES).run().ends
