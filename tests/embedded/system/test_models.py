"""Models asked from this process: values, streams, errors, cancelling, loads."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import psutil
import pytest

import zmqtriton
from tests.support.server import ROOT
from tests.support.server import Server as Repository
from tests.support.waiting import eventually
from zmqtriton.embedded import own_inputs
from zmqtriton_floor.errors import InternalError, InvalidArgument, NotFound
from zmqtriton_frontends.tensors import payload

pytestmark = [pytest.mark.system, pytest.mark.large_tensors]

_LOADED = ("identity_fp32", "add_sub", "string_upper", "tokens", "raising")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    models = (*_LOADED, "counting", "batch_size")
    return Repository(tmp_path_factory.mktemp("embedded") / "s", models=models)


def _one(server: zmqtriton.Server, model: str, **inputs: Any) -> dict[str, Any]:
    [response] = server.model(model).infer(inputs=inputs)
    assert response.final
    assert response.error is None
    return dict(response.outputs)


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[zmqtriton.Server]:
    options: dict[str, Any] = {
        "model_control_mode": "explicit",
        "load_model": _LOADED,
        "log_info": False,
        "id": "mine",
    }
    with zmqtriton.Server(repository.repository, **options) as server:
        # What is opened at first use is no leak of the test that happens to be the first.
        list(server.model("tokens").infer(inputs={"COUNT": [50], "DELAY_US": [1000]}))
        large = np.zeros(4 << 20, np.float32)
        held = [_one(server, "identity_fp32", INPUT0=large) for _ in range(4)]
        del held
        yield server


def test_arrays_of_numpy_become_those_of_the_model(server: zmqtriton.Server) -> None:
    assert np.float32 == _one(server, "identity_fp32", INPUT0=np.ones(3))["OUTPUT0"].dtype
    with pytest.raises(InvalidArgument, match=r"pass np\.float32"):
        _one(server, "identity_fp32", INPUT0=np.array([1e300]))


def test_a_notebook_shows_what_its_objects_are(
    repository: Repository, capfd: pytest.CaptureFixture[str]
) -> None:
    server = zmqtriton.Server(repository.repository, model_control_mode="explicit", id="mine")
    assert "<Server: not connected>" == repr(server)
    with server:
        # one that waits for models of its program warns of nothing
        assert "" == capfd.readouterr().err
        server.load("add_sub")
        a = np.ones((1, 16), np.float32)
        responses = server.model("add_sub").infer(inputs={"INPUT0": a, "INPUT1": a})

        assert "<Server 'mine', models: add_sub>" == repr(server)
        assert repr(responses).startswith("<Responses of 'add_sub': ")
        assert repr(next(responses)).startswith("InferenceResponse(model='add_sub', version=1")
    assert "<Server: not connected>" == repr(server)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"request_id": 5}, "request_id must be a string, got int"),
        ({"outputs": "OUTPUT0"}, "outputs must be a sequence of names, got str"),
        ({"outputs": [1]}, "the name of an output must be a string, got int"),
        ({"outputs": ["OUTPUT0"] * 2}, "output 'OUTPUT0' already exists in request"),
        ({"parameters": []}, "parameters must be a dict, got list"),
        ({"parameters": {1: 2}}, "the name of a parameter must be a string, got int"),
        ({"parameters": {"p": None}}, "parameter 'p' must be an integer, a float, a boolean or a"),
        ({"parameters": {"p" * 1025: 1}}, "a parameter's name cannot be longer than 1024"),
        ({"priority": 1.5}, "priority must be an integer, got float"),
        ({"priority": -1}, "'priority' must be from 0"),
        ({"timeout": "1"}, "timeout must be an integer, got str"),
        ({"correlation_id": None}, "correlation_id must be an integer, got NoneType"),
        ({"correlation_id": 2**64}, "the sequence id must be from 0 to"),
        ({"correlation_id": "x" * 129}, "string correlation ID cannot be longer than 128"),
        ({"inputs": {1: np.zeros(1, np.float32)}}, "the name of an input must be a string"),
    ],
)
def test_a_request_that_is_none_is_refused_and_costs_nobody_a_broker(
    server: zmqtriton.Server, fields: dict[str, Any], text: str
) -> None:
    arguments = {"inputs": {"INPUT0": np.zeros(1, np.float32)}, **fields}

    with pytest.raises(InvalidArgument, match=re.escape(text)):
        list(server.model("identity_fp32").infer(**arguments))

    assert [0] == _one(server, "identity_fp32", INPUT0=np.zeros(1, np.float32))["OUTPUT0"].tolist()


def test_it_is_live_and_ready_and_says_who_it_is(server: zmqtriton.Server) -> None:
    assert server.live
    assert server.ready
    assert "mine" == server.metadata()["name"]
    assert set(_LOADED) == {m["name"] for m in server.models(ready=True)}
    assert "READY" == server.models(ready=True)[0]["state"]


def test_no_port_is_opened(server: zmqtriton.Server) -> None:
    main = psutil.Process(server.pid)

    for process in (main, *main.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # a reader that has ended
            assert not [c for c in process.net_connections("tcp") if c.status == "LISTEN"]


def test_texts_come_as_bytes(server: zmqtriton.Server) -> None:
    for texts in (
        ["kühl", "b"],
        np.array(["kühl", "b"]),
        np.array(["kühl".encode(), b"b"], object),
    ):
        output = _one(server, "string_upper", INPUT0=np.asarray(texts).reshape(1, 2))["OUTPUT0"]
        assert ["KÜHL".encode(), b"B"] == output.reshape(-1).tolist()


def test_large_outputs_are_views_that_stay_as_they_are(server: zmqtriton.Server) -> None:
    arrays = [np.full(4 << 20, number, np.float32) for number in range(4)]

    outputs = [_one(server, "identity_fp32", INPUT0=array)["OUTPUT0"] for array in arrays]

    assert all(np.array_equal(a, b) for a, b in zip(arrays, outputs, strict=True))
    assert not any(array.flags.writeable for array in outputs)
    del outputs
    assert _one(server, "identity_fp32", INPUT0=arrays[1])["OUTPUT0"][0] == 1


def test_an_array_of_the_server_is_not_copied(
    server: zmqtriton.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[int] = []
    copy, array_over = payload.copy, own_inputs.array_over

    def counting(data: Any, view: memoryview, start: int, end: int) -> None:
        copies.append(end - start)
        copy(data, view, start, end)

    def counting_room(arena: Any, room: Any) -> Any:
        copies.append(room.reference.size)
        return array_over(arena, room)

    monkeypatch.setattr(payload, "copy", counting)
    monkeypatch.setattr(own_inputs, "array_over", counting_room)
    for _ in range(3):
        block = server.empty((4, 1 << 20))
        block[:] = np.arange(4)[:, None]
        rows = [_one(server, "identity_fp32", INPUT0=row)["OUTPUT0"] for row in block]
        assert [0, 1, 2, 3] == [row[-1] for row in rows]
        whole = _one(server, "identity_fp32", INPUT0=block.reshape(-1))["OUTPUT0"]
        assert np.array_equal(block.reshape(-1), whole)
    assert copies == []

    _one(server, "identity_fp32", INPUT0=block[:, ::2].reshape(-1))
    assert block.nbytes // 2 == sum(copies)
    with pytest.raises(TypeError, match="no bytes to share"):
        server.empty((2,), object)


def test_arrays_over_other_memory_are_read_where_they_lie(server: zmqtriton.Server) -> None:
    numbers = np.arange(1 << 20, dtype=np.float32)
    memory = memoryview(numbers.tobytes())

    for array in (
        np.frombuffer(memory, np.float32, offset=4096),
        np.frombuffer(memory[4096:], np.float32),
        np.frombuffer(memory, np.float32).reshape(1024, 1024)[1:].reshape(-1)[: -(1 << 10)],
        np.frombuffer(memory.cast("H"), np.float32)[1024:],
    ):
        output = _one(server, "identity_fp32", INPUT0=array)["OUTPUT0"]
        assert output[0] == 1024
        assert np.array_equal(array, output)


def test_a_stream_is_iterated_over(server: zmqtriton.Server) -> None:
    responses = [*server.model("tokens").infer(inputs={"COUNT": [3]})]

    assert [b"token0", b"token1", b"token2"] == [
        response.outputs["TOKEN"][0] for response in responses if response.outputs
    ]
    assert [False, False, True] == [response.final for response in responses][-3:]


def test_a_stream_that_is_closed_is_cancelled(
    server: zmqtriton.Server, repository: Repository
) -> None:
    inputs = {"COUNT": [100_000], "DELAY_US": [1000]}
    stream = server.model("tokens").infer(inputs=inputs, request_id="closed")
    next(stream)

    stream.close()  # type: ignore[attr-defined]

    journal = repository.journal
    eventually(lambda: journal.exists() and "closed" in journal.read_text(), 30, "the cancelling")
    with pytest.raises(StopIteration):
        next(stream)


def test_a_stream_that_is_dropped_is_cancelled(
    server: zmqtriton.Server, repository: Repository
) -> None:
    inputs = {"COUNT": [100_000], "DELAY_US": [1000]}
    next(server.model("tokens").infer(inputs=inputs, request_id="dropped"))

    eventually(lambda: "dropped" in repository.journal.read_text(), 30, "the cancelling")


def test_errors_are_those_that_clients_get(server: zmqtriton.Server) -> None:
    def fail(model: str, **inputs: Any) -> None:
        next(server.model(model).infer(inputs=inputs))

    with pytest.raises(InvalidArgument, match="unknown model: 'nobody'"):
        fail("nobody", X=[1])
    with pytest.raises(InvalidArgument, match="data-type is 'BYTES'"):
        fail("identity_fp32", INPUT0=np.array(["a"]))
    with pytest.raises(InvalidArgument, match="expected 1 inputs but got 0"):
        fail("identity_fp32")
    with pytest.raises(InvalidArgument, match="'INPUT0' must be an array"):
        fail("identity_fp32", INPUT0=[[1], [2, 3]])
    with pytest.raises(InvalidArgument, match="has no datatype"):
        fail("identity_fp32", INPUT0=np.zeros(2, np.complex64))
    with pytest.raises(InternalError, match="on purpose"):
        fail("raising", INPUT0=[1])
    with pytest.raises(NotFound, match="version 7 is not found"):
        next(server.model("add_sub", 7).infer(inputs={}))


def test_only_the_wanted_outputs_come(server: zmqtriton.Server) -> None:
    ones = np.ones((1, 16), np.float32)
    request = server.model("add_sub").create_request({"INPUT0": ones, "INPUT1": ones})

    [response] = server.model("add_sub").infer(request, outputs=["OUTPUT1"], request_id="r")

    assert ["OUTPUT1"] == [*response.outputs]
    assert "r" == response.request_id


def test_a_deadline_ends_a_request(server: zmqtriton.Server) -> None:
    inputs = {"COUNT": [100_000], "DELAY_US": [1000]}

    stream = server.model("tokens").infer(inputs=inputs, deadline_s=0.2)

    with pytest.raises(TimeoutError, match="deadline has passed"):
        list(stream)


def test_coroutines_ask_side_by_side(server: zmqtriton.Server) -> None:
    async def ask(number: int) -> list[float]:
        model = server.model("identity_fp32")
        return [
            response.outputs["OUTPUT0"][0]
            async for response in model.async_infer(inputs={"INPUT0": [number]})
        ]

    async def scenario() -> list[list[float]]:
        return await asyncio.gather(*(ask(number) for number in range(20)))

    assert [[number] for number in range(20)] == asyncio.run(scenario())


def test_a_coroutine_that_is_cancelled_cancels_its_request(
    server: zmqtriton.Server, repository: Repository
) -> None:
    async def read(begun: asyncio.Event) -> None:
        inputs = {"COUNT": [100_000], "DELAY_US": [1000]}
        async for _ in server.model("tokens").async_infer(inputs=inputs, request_id="coroutine"):
            begun.set()

    async def scenario() -> None:
        reading = asyncio.create_task(read(begun := asyncio.Event()))
        await begun.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(scenario())
    eventually(lambda: "coroutine" in repository.journal.read_text(), 30, "the cancelling")


def test_what_a_model_is_can_be_asked(server: zmqtriton.Server) -> None:
    model = server.model("add_sub")

    assert model.is_ready()
    assert not server.model("nobody").is_ready()
    assert model.batch_ready
    assert not server.model("identity_fp32").batch_ready
    assert "python" == model.metadata()["platform"]
    assert "add_sub" == model.config()["name"]
    next(model.infer(inputs={name: np.ones((1, 16), np.float32) for name in ("INPUT0", "INPUT1")}))
    assert model.statistics()["model_stats"][0]["inference_count"] > 0
    assert 'nv_inference_request_success{model="add_sub",version="1"}' in server.metrics()


def test_models_are_loaded_and_unloaded(server: zmqtriton.Server) -> None:
    counting = server.load("counting")
    numbers = [r.outputs["NUMBER"][0] for r in counting.infer(inputs={"COUNT": [2]}) if r.outputs]
    assert [0, 1] == numbers

    server.unload("counting")
    assert not counting.is_ready()
    with pytest.raises(NotFound, match="no available versions"):
        next(counting.infer(inputs={"COUNT": [2]}))
    with pytest.raises(InternalError, match="failed to load 'nobody'"):
        server.load("nobody")


def test_a_model_is_loaded_from_given_files(server: zmqtriton.Server) -> None:
    source = (ROOT / "tests/models/identity_fp32/1/model.py").read_bytes()
    config = {
        "name": "given",
        "backend": "python",
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    }

    model = server.load("given", config=json.dumps(config), files={"1/model.py": source})

    assert [7] == next(model.infer(inputs={"INPUT0": [7]})).outputs["OUTPUT0"].tolist()
    server.unload("given")
