"""Arrays of this process that become inputs, and are written again: as soon as they may be.

The content of each follows from a seed, so that each answer is known before. The loop of the
connection is held where the order of the two threads matters.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import pytest

import zmqtriton
from tests.support.server import Server as Repository
from tests.support.waiting import eventually
from zmqtriton_floor.errors import ZmqTritonError

pytestmark = pytest.mark.system

#: Inline, in one of several blocks of a segment, and in a segment of its own.
COUNTS = (16, 10_000, 150_000, 4 << 20)

_CONFIG = """
backend: "python"
{more}
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
"""
#: A stream that has its input twice.
_TWICE = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            sender = request.get_response_sender()
            for _ in range(2):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", array)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
#: A model that keeps what another one has answered, and gives it again for an input of one number.
_KEEPS = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    kept = None

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
        if tensor.shape()[0] > 1:
            question = pb_utils.InferenceRequest(
                model_name="identity_fp32", inputs=[tensor], requested_output_names=["OUTPUT0"]
            )
            self.kept = question.exec().output_tensors()[0]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", self.kept.as_numpy())])
"""
_BOTH = "version_policy { all {} }"
#: The version that is tried reads its input when the test says so.
_WAITS = """
import os
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
        while not os.path.exists("PATH"):
            time.sleep(0.002)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor.as_numpy())])
"""
_CHAIN = """
platform: "ensemble"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "identity_fp32" model_version: -1
    input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "MIDDLE" } },
  { model_name: "identity_fp32" model_version: -1
    input_map { key: "INPUT0" value: "MIDDLE" } output_map { key: "OUTPUT0" value: "OUTPUT0" } }
] }
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    repository = Repository(tmp_path_factory.mktemp("arrays") / "s", models=["identity_fp32"])
    identity = repository.repository / "identity_fp32/1/model.py"
    repository.write_model(
        "twice", _CONFIG.format(more="model_transaction_policy { decoupled: true }"), _TWICE
    )
    repository.write_model("keeps", _CONFIG.format(more=""), _KEEPS)
    tried = repository.write_model("tried", _CONFIG.format(more=_BOTH), identity.read_text())
    (tried / "2").mkdir()
    (tried / "2/model.py").write_text(_WAITS.replace("PATH", str(repository.scratch / "go")))
    for kind in KINDS:
        name = f"late{kind.__name__}"
        repository.write_model(name, _CONFIG.format(more=""), identity.read_text())
    repository.write_model("chain", _CHAIN)
    return repository


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[zmqtriton.Server]:
    names = ("identity_fp32", "twice", "keeps", "chain")
    options: dict[str, Any] = {
        "model_control_mode": "explicit",
        "load_model": (*names, "tried"),
        "load_on_demand": True,
    }
    with zmqtriton.Server(repository.repository, **options) as server:
        for model in names:  # what is opened at first use is no leak of a test
            for length in COUNTS:
                list(server.model(model).infer(inputs={"INPUT0": np.zeros(length, np.float32)}))
        yield server


_seeds = count(1)


def numbers(length: int) -> Any:
    """Other numbers with each call."""
    return np.random.default_rng(next(_seeds)).standard_normal(length, np.float32)


@contextmanager
def held(server: zmqtriton.Server) -> Iterator[None]:
    """Keep the loop of the connection from all that is given to it meanwhile."""
    begun, goes_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        goes_on.wait(60)

    # what requests are given to, too
    server._guest.soon(wait)
    begun.wait(60)
    try:
        yield
    finally:
        goes_on.set()


def one(server: zmqtriton.Server, model: str, array: Any) -> Any:
    *_, last = [r.outputs for r in server.model(model).infer(inputs={"INPUT0": array}) if r.outputs]
    return last["OUTPUT0"]


def warm(server: zmqtriton.Server, length: int) -> None:
    """Have memory made for such an input, for which the loop is needed."""
    one(server, "identity_fp32", np.zeros(length, np.float32))


# ------------------------------------------------------------- as soon as the call returns


@pytest.mark.parametrize("length", COUNTS)
@pytest.mark.parametrize("model", ["identity_fp32", "twice", "chain"])
def test_an_array_may_change_when_infer_has_returned(
    server: zmqtriton.Server, model: str, length: int
) -> None:
    warm(server, length)
    array = numbers(length)
    expected = array.copy()

    with held(server):
        responses = server.model(model).infer(inputs={"INPUT0": array})
        array[:] = 0.0

    for response in responses:
        for output in response.outputs.values():
            assert np.array_equal(expected, output)


@pytest.mark.parametrize("length", COUNTS)
def test_an_array_may_change_when_async_infer_has_returned(
    server: zmqtriton.Server, length: int
) -> None:
    warm(server, length)
    array = numbers(length)
    expected = array.copy()

    async def ask() -> list[Any]:
        with held(server):
            responses = server.model("identity_fp32").async_infer(inputs={"INPUT0": array})
            array[:] = 0.0
        return [response.outputs["OUTPUT0"] async for response in responses]

    [output] = asyncio.run(ask())

    assert np.array_equal(expected, output)


def _as_list(array: Any) -> tuple[Any, Callable[[], None]]:
    values = [float(value) for value in array]
    return values, values.clear


def _as_doubles(array: Any) -> tuple[Any, Callable[[], None]]:
    doubles = array.astype(np.float64)
    return doubles, lambda: doubles.fill(0)


def _with_gaps(array: Any) -> tuple[Any, Callable[[], None]]:
    wide = np.repeat(array, 2)
    return wide[::2], lambda: wide.fill(0)


def _over_memory(array: Any) -> tuple[Any, Callable[[], None]]:
    memory = bytearray(array.tobytes())

    def clear() -> None:
        memory[:] = bytes(len(memory))

    return np.frombuffer(memoryview(memory), np.float32), clear


class _OfAnotherLibrary:
    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def _by_dlpack(array: Any) -> tuple[Any, Callable[[], None]]:
    other = _OfAnotherLibrary(array.copy())
    return other, lambda: other.array.fill(0)


KINDS = (_as_list, _as_doubles, _with_gaps, _over_memory, _by_dlpack)


@pytest.mark.parametrize(
    ("model", "length"),
    [("identity_fp32", 16), ("identity_fp32", 60_000), ("late", 60_000)],
    ids=["inline", "in memory", "before a load"],
)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_inputs_of_each_kind_may_change(
    server: zmqtriton.Server, kind: Any, model: str, length: int
) -> None:
    warm(server, 2 * length)  # doubles take twice the memory
    expected = numbers(length)
    value, change = kind(expected)
    name = f"late{kind.__name__}" if model == "late" else model

    with held(server):
        responses = server.model(name).infer(inputs={"INPUT0": value})
        change()

    [response] = responses
    assert np.array_equal(expected, response.outputs["OUTPUT0"])


def test_inputs_and_parameters_may_change_too(server: zmqtriton.Server) -> None:
    inputs, outputs = {"INPUT0": numbers(16)}, ["OUTPUT0"]
    parameters: dict[str, Any] = {"a": 1}
    expected = inputs["INPUT0"].copy()

    with held(server):
        responses = server.model("identity_fp32").infer(
            inputs=inputs, outputs=outputs, parameters=parameters
        )
        inputs["INPUT0"] = np.zeros(16, np.float32)
        outputs[0] = "NONE"
        parameters["a"] = object()

    [response] = responses
    assert np.array_equal(expected, response.outputs["OUTPUT0"])


def test_arrays_may_change_where_memory_is_made_first(server: zmqtriton.Server) -> None:
    expected, responses = [], []
    array = np.empty(3 << 20, np.float32)

    for _ in range(6):  # more than there are segments of this size
        array[:] = numbers(len(array))
        expected.append(array.copy())
        responses.append(server.model("identity_fp32").infer(inputs={"INPUT0": array}))
    array[:] = 0.0

    for right, [response] in zip(expected, responses, strict=True):
        assert np.array_equal(right, response.outputs["OUTPUT0"])


def test_what_is_copied_for_requests_is_free_when_they_are_answered(
    server: zmqtriton.Server,
) -> None:
    arena = server._guest.gateway.payload.arena  # how much is taken of it no answer tells
    array = numbers(150_000)
    before = arena.used

    for _ in range(3):
        one(server, "identity_fp32", array)
        with pytest.raises(ZmqTritonError):
            one(server, "none", array)
        with pytest.raises(ZmqTritonError):
            list(server.model("identity_fp32").infer(inputs={"X": array, "INPUT0": array}))
        server.model("identity_fp32").infer(inputs={"INPUT0": array})  # and cancelled

    eventually(lambda: arena.used <= before, 60, "all blocks are free")


# ------------------------------------------------------------------- arrays of the server


@pytest.fixture(scope="module")
def block(server: zmqtriton.Server) -> Any:
    """An array of the server, of one segment for all tests."""
    return server.empty((70_000,))


def refill(block: Any) -> Any:
    """Fill an array with other numbers; return a copy of them."""
    block[:] = numbers(len(block))
    return block.copy()


@pytest.mark.parametrize("model", ["identity_fp32", "twice", "chain"])
def test_answers_stay_as_they_were_when_their_input_is_filled_again(
    server: zmqtriton.Server, block: Any, model: str
) -> None:
    expected, outputs = [], []

    for _ in range(4):
        expected.append(refill(block))
        outputs.append(one(server, model, block))
    block[:] = 0.0
    server.load("keeps")  # and a reload

    for right, output in zip(expected, outputs, strict=True):
        assert np.array_equal(right, output)


def test_a_copy_to_a_canary_is_not_compared_where_its_input_may_change(
    server: zmqtriton.Server, repository: Repository, block: Any
) -> None:
    server.control("canary.start", model="tried", version=2, shadow="100%")
    expected = refill(block)

    def results() -> dict[str, int]:
        [row] = server.control("canary.status", model="tried")
        return {name: row["comparisons"][name] for name in ("equal", "different", "skipped")}

    assert np.array_equal(expected, one(server, "tried", block))
    block[:] = 0.0
    assert np.array_equal(expected, one(server, "tried", expected))
    (repository.scratch / "go").touch()

    eventually(lambda: sum(results().values()) == 2, 60, "both are counted")
    assert {"equal": 1, "different": 0, "skipped": 1} == results()
    server.control("canary.abort", model="tried")


def test_what_a_model_keeps_of_anothers_answer_does_not_change(
    server: zmqtriton.Server, block: Any
) -> None:
    expected = refill(block)
    one(server, "keeps", block)

    block[:] = 0.0

    assert np.array_equal(expected, one(server, "keeps", np.zeros(1, np.float32)))
