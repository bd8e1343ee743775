"""Models asked by the in-process API of a real server: values, streams, errors, queues, loads."""

from __future__ import annotations

import asyncio
import json
import queue
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.needs import ROOT
from tests.support.scenarios import scenario
from tests.support.server import Server as Repository
from tests.support.waiting import eventually
from zmqtriton_extras.tritonserver import api as tritonserver
from zmqtriton_extras.tritonserver.api import DataType, InvalidArgumentError, Tensor, UnknownError
from zmqtriton_extras.tritonserver.enums import RequestFlag

pytestmark = pytest.mark.system

_LOADED = ["identity", "mirror", "counting", "tokens", "raising", "string_upper"]
_SLOW = {"COUNT": np.array([100_000], np.int32), "DELAY_US": np.array([1000], np.int32)}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("in-process") / "s", models=[*_LOADED, "add_sub"])


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[tritonserver.Server]:
    options = tritonserver.Options(
        server_id="mine",
        model_repository=str(repository.repository),
        model_control_mode=tritonserver.ModelControlMode.EXPLICIT,
        startup_models=_LOADED,
    )
    server = tritonserver.Server(options).start(wait_until_ready=True)
    # What is opened at first use is no leak of the test that happens to be the first.
    list(server.model("counting").infer(inputs={"COUNT": _count(50)}))
    yield server
    server.stop()


def _count(number: int) -> Any:
    return np.array([number], np.int32)


def _one(server: tritonserver.Server, model: str, **arguments: Any) -> Any:
    [response] = server.model(model).infer(**arguments)
    assert response.final
    assert response.error is None
    return response


@pytest.mark.smoke
def test_the_server_tells_about_itself_and_its_models(server: tritonserver.Server) -> None:
    assert (server.live(), server.ready()) == (True, True)
    metadata = server.metadata()
    assert metadata["name"] == "mine"
    assert "model_repository" in metadata["extensions"]

    models = server.models()
    assert str(models["counting", 1]) == "{'name': 'counting', 'version': 1, 'state': 'READY'}"
    assert str(models["add_sub", -1]) == "{'name': 'add_sub', 'version': -1, 'state': None}"
    assert (models["counting"].name, models["counting"].version) == ("counting", -1)
    assert ("add_sub", -1) not in server.models(exclude_not_ready=True)
    for unknown in ("nobody", ("counting", 7)):
        with pytest.raises(KeyError, match="Unknown Model"):
            models[unknown]


def test_a_model_tells_about_itself(server: tritonserver.Server) -> None:
    upper, counting = server.model("string_upper"), server.model("counting", 1)

    assert upper.ready()
    assert not server.model("nobody").ready()
    assert upper.metadata()["versions"] == ["1"]
    assert upper.config()["backend"] == "python"
    assert tritonserver.ModelBatchFlag.FIRST_DIM is upper.batch_properties()
    assert tritonserver.ModelBatchFlag.UNKNOWN is counting.batch_properties()
    assert tritonserver.ModelTxnPropertyFlag.ONE_TO_ONE is upper.transaction_properties()
    assert tritonserver.ModelTxnPropertyFlag.DECOUPLED is counting.transaction_properties()
    [statistics] = counting.statistics()["model_stats"]
    assert (statistics["name"], statistics["version"]) == ("counting", "1")
    with pytest.raises(InvalidArgumentError, match="version 2 is not supported"):
        upper.config(2)
    with pytest.raises(tritonserver.TritonError, match="'nobody'"):
        server.model("nobody").metadata()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("fp16", np.array([[0.5, 1.5]], np.float16)),
        ("fp32", np.arange(6, dtype=np.float32).reshape(2, 3)),
        ("fp32", np.full((1024, 1024), 7, np.float32)),
        ("int64", [[1, 2], [3, 4]]),
        ("uint16", np.array([[1, 2]], np.uint16)),
        ("bool", [[True, False]]),
        ("fp32", Tensor.from_object(np.ones((1, 2), np.float32))),
        ("fp32", np.zeros((0, 2), np.float32)),
    ],
)
def test_arrays_come_back_as_they_were(server: tritonserver.Server, name: str, given: Any) -> None:
    response = _one(server, "identity", inputs={f"{name}_input": given})

    tensor = response.outputs[f"{name}_output"]
    expected = np.from_dlpack(given) if isinstance(given, Tensor) else np.asarray(given)
    assert DataType[name.upper()] is tensor.data_type
    assert [*expected.shape] == tensor.shape.tolist()
    assert np.array_equal(expected, np.from_dlpack(tensor))


@pytest.mark.parametrize("length", [16, 300_000])
@pytest.mark.parametrize("data_type", [DataType.FP16, DataType.BF16])
def test_memory_may_change_when_infer_has_returned(
    server: tritonserver.Server, data_type: DataType, length: int
) -> None:
    name = data_type.name.lower()
    numbers = np.random.default_rng(3).integers(0, 1000, length, np.uint16).reshape(1, -1)
    memory, expected = numbers.copy(), numbers.copy()
    buffer = tritonserver.MemoryBuffer.from_dlpack(memory)
    inputs = {f"{name}_input": Tensor(data_type, [1, length], buffer)}
    list(server.model("identity").infer(inputs=inputs))  # memory is made for it
    goes_on = threading.Event()

    server.running.connection._guest.soon(goes_on.wait, 60)
    responses = server.model("identity").infer(inputs=inputs)
    memory[:] = 0
    goes_on.set()

    [response] = responses
    back = response.outputs[f"{name}_output"].to_memory()
    assert np.array_equal(expected, np.frombuffer(back, np.uint16).reshape(1, -1))


def test_texts_and_bfloat16_come_back_too(server: tritonserver.Server) -> None:
    halves = np.array([0x3F80, 0x4000], np.uint16)
    given = Tensor(DataType.BF16, [1, 2], tritonserver.MemoryBuffer.from_dlpack(halves))

    response = _one(
        server, "identity", inputs={"string_input": [["kühl", "b"]], "bf16_input": given}
    )

    texts, numbers = response.outputs["string_output"], response.outputs["bf16_output"]
    assert texts.to_string_array().tolist() == [["kühl", "b"]]
    assert [["kühl".encode(), b"b"]] == texts.to_bytes_array().tolist()
    assert DataType.BF16 is numbers.data_type
    assert halves.tobytes() == bytes(numbers.to_memory())


def test_an_output_is_an_input_of_the_next_request(server: tritonserver.Server) -> None:
    first = _one(server, "identity", inputs={"fp32_input": np.ones((512, 512), np.float32)})

    second = _one(server, "identity", inputs={"fp32_input": first.outputs["fp32_output"]})

    assert np.from_dlpack(second.outputs["fp32_output"]).sum() == 512 * 512


def test_a_request_has_all_its_fields(server: tritonserver.Server) -> None:
    request = server.model("mirror").create_request(
        request_id="r",
        correlation_id="s",
        flags=RequestFlag.SEQUENCE_START | RequestFlag.SEQUENCE_END,
        parameters={"int": 0, "float": 0.5, "bool": False, "text": "test"},
    )
    request.inputs["TEXTS"] = ["a"]

    responses = [*server.model("mirror").infer(request), *server.model("mirror").infer(request)]

    for response in responses:
        seen = json.loads(response.outputs["SEEN"].to_string_array()[0])
        assert (seen["id"], seen["sequence"], seen["flags"]) == ("r", "s", 3)
        assert seen["parameters"] == {"int": 0, "float": 0.5, "bool": False, "text": "test"}
        assert response.parameters == {"int": 0, "bool": False, "text": "test"}
        assert response.request_id == "r"
        assert (response.model.name, response.model.version) == ("mirror", 1)
    assert request.model.version == -1


@pytest.mark.row("J63")
def test_a_stream_ends_with_a_final_response(server: tritonserver.Server) -> None:
    def ask(**parameters: Any) -> list[Any]:
        responses = server.model("counting").infer(
            inputs={"COUNT": _count(3)}, parameters=parameters
        )
        return [
            (int(np.from_dlpack(r.outputs["NUMBER"])[0]) if r.outputs else None, r.final)
            for r in responses
        ]

    assert ask() == [(0, False), (1, False), (2, False), (None, True)]
    assert ask(with_last=True) == [(0, False), (1, False), (2, True)]


def test_errors_are_raised_or_given(server: tritonserver.Server) -> None:
    model = server.model("raising")
    inputs = {"INPUT0": np.zeros(1, np.float32)}

    with pytest.raises(tritonserver.InternalError, match="on purpose") as caught:
        list(model.infer(inputs=inputs))
    assert caught.value.args[1].error is caught.value
    [response] = model.infer(inputs=inputs, raise_on_error=False)
    assert isinstance(response.error, tritonserver.InternalError)
    assert (response.final, response.outputs) == (True, {})
    assert "on purpose" in str(response.error)


def test_a_stream_goes_on_behind_an_error(server: tritonserver.Server) -> None:
    responses = server.model("counting").infer(
        inputs={"COUNT": _count(3)}, parameters={"error_at": 1}
    )

    assert np.from_dlpack(next(responses).outputs["NUMBER"]).tolist() == [0]
    with pytest.raises(tritonserver.UnsupportedError, match="left out"):
        next(responses)
    assert np.from_dlpack(next(responses).outputs["NUMBER"]).tolist() == [2]
    assert next(responses).final
    with pytest.raises(StopIteration):
        next(responses)


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        ({"parameters": {"p": None}}, InvalidArgumentError, "Can't convert <class 'NoneType'>"),
        ({"parameters": {"p": {"test": 1}}}, InvalidArgumentError, "to Request Parameter"),
        ({"inputs": {"INPUT0": {}}}, InvalidArgumentError, "not supported. Must be"),
        ({"response_queue": asyncio.Queue}, InvalidArgumentError, "queue.SimpleQueue must be"),
        ({"inputs": {"INPUT0": [[1]]}}, InvalidArgumentError, "data-type is 'INT64'"),
        ({}, InvalidArgumentError, "expected 1 inputs but got 0"),
        (
            {"inputs": {"INPUT0": [["a"]]}, "output_memory_type": "unsupported"},
            InvalidArgumentError,
            "Memory type unsupported not supported",
        ),
    ],
)
def test_wrong_requests_are_refused(
    server: tritonserver.Server, asked: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        list(server.model("string_upper").infer(**asked))

    given = _one(server, "string_upper", inputs={"INPUT0": [["a"]]}, output_memory_type="cpu")
    assert given.outputs["OUTPUT0"].to_string_array().tolist() == [["A"]]


def test_coroutines_iterate_likewise(server: tritonserver.Server) -> None:
    async def ask(number: int) -> list[int]:
        responses = server.model("counting").async_infer(inputs={"COUNT": _count(number)})
        return [
            int(np.from_dlpack(response.outputs["NUMBER"])[0])
            async for response in responses
            if response.outputs
        ]

    async def scenario() -> list[list[int]]:
        with pytest.raises(tritonserver.InternalError, match="on purpose"):
            await anext(server.model("raising").async_infer(inputs={"INPUT0": _floats()}))
        with pytest.raises(InvalidArgumentError, match=r"asyncio.Queue must be"):
            server.model("raising").async_infer(response_queue=queue.SimpleQueue())
        return await asyncio.gather(*(ask(number) for number in range(5)))

    assert [[*range(number)] for number in range(5)] == asyncio.run(scenario())


def _floats() -> Any:
    return np.zeros(1, np.float32)


@pytest.mark.row("J63")
def test_queues_get_the_responses_of_several_requests(server: tritonserver.Server) -> None:
    responses: queue.SimpleQueue[Any] = queue.SimpleQueue()
    model, inputs = server.model("counting"), {"COUNT": _count(2)}

    iterators = [model.infer(inputs=inputs, response_queue=responses) for _ in range(2)]

    queued = [responses.get(timeout=60) for _ in range(6)]
    assert sum(response.final for response in queued) == 2
    for iterator in iterators:
        assert [response.final for response in iterator] == [False, False, True]
    assert responses.empty()


@scenario(asyncio.run)
async def test_queues_of_coroutines_get_them_too(server: tritonserver.Server) -> None:
    responses: asyncio.Queue[Any] = asyncio.Queue()
    model = server.model("raising")
    iterator = model.async_infer(inputs={"INPUT0": _floats()}, response_queue=responses)

    response = await asyncio.wait_for(responses.get(), 60)

    assert "on purpose" in str(response.error)
    with pytest.raises(tritonserver.InternalError, match="on purpose"):
        await anext(iterator)
    assert responses.empty()


@pytest.mark.row("J63")
def test_a_thread_that_waits_is_told_of_a_cancel(
    server: tritonserver.Server, repository: Repository
) -> None:
    inputs = {"COUNT": _count(1000), "DELAY_US": np.array([600_000], np.int32)}
    responses = server.model("tokens").infer(
        inputs=inputs, request_id="thread", raise_on_error=False
    )
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.extend(responses))
    thread.start()
    eventually(lambda: got, 30, "the first response")

    responses.cancel()

    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(got[-1].error, UnknownError)
    assert str(got[-1].error) == "request was cancelled"
    eventually(lambda: "thread" in repository.journal.read_text(), 30, "the cancelling")


@scenario(asyncio.run)
async def test_a_coroutine_that_waits_is_told_of_a_cancel(server: tritonserver.Server) -> None:
    inputs = {"COUNT": _count(1000), "DELAY_US": np.array([600_000], np.int32)}
    responses = server.model("tokens").async_infer(inputs=inputs)
    await anext(responses)
    waiting = asyncio.ensure_future(anext(responses))
    await asyncio.sleep(0)

    responses.cancel()

    with pytest.raises(UnknownError, match="request was cancelled"):
        await asyncio.wait_for(waiting, 60)


@pytest.mark.row("J64")
def test_models_are_loaded_with_files_of_the_program_and_unloaded(
    server: tritonserver.Server,
) -> None:
    code = (ROOT / "tests/models/identity_fp32/1/model.py").read_bytes()
    config = {
        "backend": "python",
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    }
    parameters = {"config": json.dumps(config), "file:3/model.py": code}

    model = server.load("brought", parameters)

    assert model.metadata()["versions"] == ["3"]
    assert np.from_dlpack(
        _one(server, "brought", inputs={"INPUT0": _floats()}).outputs["OUTPUT0"]
    ).tolist() == [0]
    server.unload(model, wait_until_unloaded=True)
    assert server.models()["brought", 3].state == "UNAVAILABLE"
    with pytest.raises(InvalidArgumentError, match="unrecognized load parameter 'colour'"):
        server.load("brought", {"colour": "red"})
    with pytest.raises(tritonserver.TritonError, match="nobody"):
        server.load("nobody")
    with pytest.raises(tritonserver.UnavailableError, match="polling is disabled"):
        server.poll_model_repository()


def test_directories_are_registered_with_other_names(
    server: tritonserver.Server, tmp_path: Path
) -> None:
    (tmp_path / "folder" / "1").mkdir(parents=True)
    source = ROOT / "tests/models/identity_fp32"
    for name in ("config.pbtxt", "1/model.py"):
        (tmp_path / "folder" / name).write_bytes((source / name).read_bytes())

    server.register_model_repository(str(tmp_path), {"folder": "renamed"})

    assert server.load("renamed").ready()
    server.unload("renamed", wait_until_unloaded=True)
    server.unregister_model_repository(str(tmp_path))
    assert "folder" not in {name for name, _ in server.models()}
    with pytest.raises(tritonserver.TritonError):
        server.unregister_model_repository(str(tmp_path))


@pytest.mark.row("J64")
def test_the_page_has_the_metrics_of_server_and_program(server: tritonserver.Server) -> None:
    family = tritonserver.MetricFamily(
        tritonserver.MetricKind.COUNTER, "of_my_own_total", "Of the program"
    )
    metric = tritonserver.Metric(family, {"a": "b"})
    metric.increment(3)

    page = server.metrics()

    assert 'nv_inference_request_success{model="counting"' in page
    assert 'of_my_own_total{a="b"} 3' in page
