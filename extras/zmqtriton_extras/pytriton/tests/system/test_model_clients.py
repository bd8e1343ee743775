"""The clients of PyTriton's API, asked as scripts ask them, over both protocols."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.journal import (
    UNTIL_RELEASED,
    executions,
    has_seen_cancellation,
    read_journal,
    release_execution,
)
from tests.support.server import Server, free_ports
from tests.support.waiting import eventually
from zmqtriton_extras.pytriton.client import (
    AsyncioDecoupledModelClient,
    AsyncioModelClient,
    DecoupledModelClient,
    FuturesModelClient,
    ModelClient,
)
from zmqtriton_extras.pytriton.client import exceptions as errors
from zmqtriton_extras.pytriton.client.utils import (
    ModelState,
    create_client_from_url,
    get_model_state,
    wait_for_server_ready,
)

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            "add_sub",
            "string_upper",
            "identity_fp32",
            "tokens",
            "raising",
            "scripted",
            "journal",
        ],
        options=[
            "--model-control-mode=explicit",
            "--load-model=*",
            "--http-header-forward-pattern=x-.*",
            "--grpc-header-forward-pattern=x-.*",
            "--http-restricted-api=model-repository:triton-access-token=secret",
            "--grpc-restricted-protocol=model-repository:triton-access-token=secret",
        ],
        frontends=("grpc",),
    ),
]
A = np.arange(16, dtype=np.float32)
B = np.full(16, 2, dtype=np.float32)
ONES = np.ones(3, np.float32)
#: Long enough never to be reached by what comes at all, and short for what does not.
SOON_S = 1.0


@pytest.fixture(params=["http", "grpc"])
def url(request: pytest.FixtureRequest, server: Server) -> str:
    return server.url if request.param == "http" else f"grpc://{server.grpc_address}"


@pytest.fixture
def grpc_url(server: Server) -> str:
    return f"grpc://{server.grpc_address}"


@pytest.fixture(params=["http", "grpc"])
def silent_url(request: pytest.FixtureRequest) -> str:
    """An address where nobody listens."""
    return f"{request.param}://127.0.0.1:{free_ports(1)[0]}"


def _text(text: str) -> np.ndarray:
    return np.array([text.encode()])


def _held(own_id: str) -> dict[str, Any]:
    """The inputs of an execution of `journal` that lasts until it is released."""
    return {"ID": _text(own_id), "MS": np.array([UNTIL_RELEASED], np.int32)}


def _count(number: int, delay_us: int = 0) -> dict[str, Any]:
    """The inputs of `tokens`."""
    return {"COUNT": np.array([number], np.int32), "DELAY_US": np.array([delay_us], np.int32)}


def _report(expression: str) -> str:
    """A script for the model `scripted` that answers with a value of its request, as JSON."""
    return f"import json\nreturn [reply(json.dumps({expression}, sort_keys=True))]"


def _check(outputs: dict[str, Any]) -> None:
    np.testing.assert_array_equal(A + B, outputs["OUTPUT0"])
    np.testing.assert_array_equal(A - B, outputs["OUTPUT1"])


@pytest.mark.row("J40")
def test_a_sample_and_a_batch_by_position_and_by_name(url: str) -> None:
    with ModelClient(url, "add_sub") as client:
        _check(client.infer_sample(A, B))
        _check(client.infer_sample(INPUT1=B, INPUT0=A))
        batches = [
            client.infer_batch(A[None], B[None]),
            client.infer_batch(INPUT0=A[None], INPUT1=B[None]),
        ]

    assert [(1, 16), (1, 16)] == [outputs["OUTPUT0"].shape for outputs in batches]


def test_outputs_belong_to_the_caller(url: str) -> None:
    with ModelClient(url, "identity_fp32") as client:
        [output] = client.infer_sample(ONES).values()

    output += 1

    assert [2.0, 2.0, 2.0] == output.tolist()


@pytest.mark.parametrize("count", [0, 1, 300_000])
def test_arrays_of_any_size_and_layout(url: str, count: int) -> None:
    array = np.random.default_rng(count).random((count, 2), dtype=np.float32)[:, 1]

    with ModelClient(url, "identity_fp32") as client:
        outputs = client.infer_sample(array)

    np.testing.assert_array_equal(array, outputs["OUTPUT0"])


def test_a_model_without_batches_gets_samples_alone(url: str) -> None:
    with ModelClient(url, "identity_fp32") as client:
        assert not client.is_batching_supported
        assert [1.0] * 3 == client.infer_sample(ONES)["OUTPUT0"].tolist()
        with pytest.raises(errors.PyTritonClientModelDoesntSupportBatchingError) as caught:
            client.infer_batch(ONES)

    assert "Model identity_fp32 doesn't support batching - use infer_sample method instead" == str(
        caught.value
    )


@pytest.mark.row("J44")
@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (np.array(["a"]), "Unicode inputs are not supported. Encode numpy array for 'INPUT0'"),
        (np.array(["a"], object), "with dtype=object should contain encoded strings"),
    ],
)
def test_texts_must_be_encoded(server: Server, array: np.ndarray, problem: str) -> None:
    with ModelClient(server.url, "string_upper") as client:
        with pytest.raises(RuntimeError, match=problem):
            client.infer_sample(array)
        for dtype in (np.bytes_, np.object_):
            outputs = client.infer_sample(np.array([b"ab", b"c"], dtype))
            assert [b"AB", b"C"] == outputs["OUTPUT0"].tolist()


@pytest.mark.row("J44")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (lambda c: c.infer_sample(), "Provide input data"),
        (lambda c: c.infer_sample(A, INPUT1=B), "Use either positional either keyword"),
        (lambda c: c.infer_sample([1.0], B), "Input INPUT0 is not a numpy array"),
        (lambda c: c.infer_sample(A.astype(complex), B), "INPUT0 has no datatype for complex128"),
        (lambda c: c.infer_sample(A, A, A), "Model add_sub has 2 inputs, got 3"),
        (lambda c: c.infer_sample(A, B, parameters=[]), "headers must be a dictionary"),
        (lambda c: c.infer_sample(A, B, parameters={1: 1}), "key must be a string"),
        (lambda c: c.infer_sample(A, B, headers={"a": 1.0}), "must be a string, integer or"),
        (
            lambda c: c.infer_sample(A, B, headers={"x": "a\r\ny: b"}),
            "'x' must not have a line break",
        ),
    ],
)
def test_arguments_that_cannot_be_used(
    server: Server, arguments: Callable[[ModelClient], object], problem: str
) -> None:
    with ModelClient(server.url, "add_sub") as client:
        with pytest.raises(errors.PyTritonClientValueError, match=problem):
            arguments(client)
        _check(client.infer_sample(A, B))


@pytest.mark.row("J40")
def test_parameters_and_headers_reach_the_model(url: str) -> None:
    parameters = {"a": 1, "b": "x", "c": True}
    script = _text(_report("json.loads(request.parameters())"))

    with ModelClient(url, "scripted") as client:
        outputs = client.infer_sample(SCRIPT=script, parameters=parameters, headers={"x-d": 2})
        with pytest.raises(errors.PyTritonClientInferenceServerError) as caught:
            client.infer_sample(SCRIPT=script, parameters={"timeout": 1})

    assert {**parameters, "x-d": "2"} == json.loads(outputs["TEXT"][0])
    assert (
        "Error occurred during inference request. Message: "
        'Parameter "timeout" is a reserved parameter and cannot be specified.'
    ) == caught.value.message


def test_requests_are_numbered_and_ask_for_every_output(url: str) -> None:
    report = _report("[request.request_id(), sorted(request.requested_output_names())]")

    with ModelClient(url, "scripted") as client:
        answers = [client.infer_sample(SCRIPT=_text(report))["TEXT"][0] for _ in range(2)]

    assert [["0", ["TEXT"]], ["1", ["TEXT"]]] == [json.loads(answer) for answer in answers]


@pytest.mark.row("J43")
def test_the_server_and_the_model_say_what_is_wrong(url: str) -> None:
    with (
        ModelClient(url, "raising") as client,
        pytest.raises(errors.PyTritonClientInferenceServerError, match="ValueError: on purpose"),
    ):
        client.infer_sample(ONES)
    with ModelClient(url, "add_sub") as client:
        with pytest.raises(errors.PyTritonClientInferenceServerError, match="data-type"):
            client.infer_sample(A.astype(np.int32), B)
        _check(client.infer_sample(A, B))


@pytest.mark.row("J43")
def test_a_response_that_does_not_come_in_time(server: Server, url: str) -> None:
    own_id = f"slow-{url[:4]}"
    with (
        ModelClient(url, "journal", inference_timeout_s=SOON_S) as client,
        pytest.raises(errors.PyTritonClientTimeoutError) as caught,
    ):
        client.infer_sample(**_held(own_id))
    release_execution(server.journal, own_id)

    assert f"Timeout occurred during inference request. Timeout: {SOON_S} s. Message:" in str(
        caught.value
    )


@pytest.mark.row("J40", "J43")
def test_a_model_that_does_not_come(url: str) -> None:
    text = "Waiting for model nowhere/<latest> to be ready timed out."
    with ModelClient(url, "nowhere", init_timeout_s=SOON_S) as client:
        for call in (
            lambda: client.wait_for_model(SOON_S),
            lambda: client.infer_sample(A),
            lambda: client.model_config,
        ):
            with pytest.raises(errors.PyTritonClientTimeoutError) as caught:
                call()
            assert text == str(caught.value)
    with pytest.raises(errors.PyTritonClientTimeoutError, match="model add_sub/7 to be ready"):
        ModelClient(url, "add_sub", "7", lazy_init=False, init_timeout_s=SOON_S)


def test_nobody_listens(silent_url: str, server: Server) -> None:
    text = "Waiting for server to be ready timed out."
    with ModelClient(server.url, "add_sub") as client:
        config = client.model_config
    with ModelClient(silent_url, "add_sub") as client:
        for wait in (client.wait_for_model, client.wait_for_server):
            with pytest.raises(errors.PyTritonClientTimeoutError, match=text):
                wait(SOON_S)
    sure: Any = {"model_config": config, "ensure_model_is_ready": False}
    with (
        ModelClient(silent_url, "add_sub", inference_timeout_s=5.0, **sure) as client,
        pytest.raises(errors.PyTritonClientError, match="during inference request"),
    ):
        client.infer_sample(A, B)


@pytest.mark.row("J40")
def test_a_server_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    late = Server(tmp_path, models=["add_sub"], frontends=("grpc",))
    with ThreadPoolExecutor(4) as threads:
        clients = [ModelClient(u, "add_sub") for u in (late.url, f"grpc://{late.grpc_address}")]
        answers = [threads.submit(client.infer_sample, A, B) for client in clients]
        waits = [threads.submit(client.wait_for_model, 60.0) for client in clients]
        assert not any(call.done() for calls in (answers, waits) for call in calls)

        with late:
            for answer, wait, client in zip(answers, waits, clients, strict=True):
                _check(answer.result(60.0))
                assert wait.result(60.0) is None
                client.close()


def test_a_closed_client_says_so(url: str) -> None:
    client = ModelClient(url, "add_sub")
    _check(client.infer_sample(A, B))
    client.close()
    client.close()

    for call in (
        lambda: client.infer_sample(A, B),
        lambda: client.wait_for_model(1.0),
        lambda: client.wait_for_server(1.0),
        client.load_model,
    ):
        with pytest.raises(errors.PyTritonClientClosedError, match="ModelClient is closed"):
            call()


def test_threads_share_a_client(url: str) -> None:
    def ask(number: int) -> bool:
        array = np.full(number + 1, number, np.float32)
        return array.tolist() == client.infer_sample(array)["OUTPUT0"].tolist()

    with ModelClient(url, "identity_fp32") as client, ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(200)))


@pytest.mark.row("J40")
def test_a_client_made_of_another_asks_for_nothing_that_is_known(url: str) -> None:
    with ModelClient(url, "add_sub", "1", access_token="secret", inference_timeout_s=7.0) as first:
        config = first.model_config
        with ModelClient.from_existing_client(first) as second:
            assert config is second.model_config
            _check(second.infer_sample(A, B))


@pytest.mark.row("J40")
def test_models_are_loaded_and_unloaded_with_the_token(server: Server, url: str) -> None:
    config = {
        "name": "identity_fp32",
        "backend": "python",
        "max_batch_size": 4,
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    }
    code = (server.repository / "identity_fp32" / "1" / "model.py").read_bytes()
    with (
        ModelClient(url, "identity_fp32") as client,
        pytest.raises(errors.PyTritonClientInferenceServerError, match="restricted"),
    ):
        client.unload_model()
    with ModelClient(url, "identity_fp32", access_token="secret") as client:
        client.unload_model()
        with pytest.raises(errors.PyTritonClientTimeoutError):
            client.wait_for_model(0.0)
        client.load_model(config=json.dumps(config), files={"file:1/model.py": code})
        assert [[1.0] * 3] == client.infer_batch(ONES[None])["OUTPUT0"].tolist()
        client.load_model()
    with ModelClient(url, "identity_fp32") as client:
        assert not client.is_batching_supported
    with (
        ModelClient(url, "nowhere", access_token="secret") as client,
        pytest.raises(errors.PyTritonClientInferenceServerError, match="failed to load 'nowhere'"),
    ):
        client.load_model()


def test_waiting_without_a_model_client(url: str) -> None:
    with create_client_from_url(url) as client:
        wait_for_server_ready(client, timeout_s=10.0)
        headers = {
            "triton-access-token": "secret",
            "triton-grpc-protocol-triton-access-token": "secret",
        }
        states = [get_model_state(client, name, None, headers) for name in ("add_sub", "nowhere")]

    assert [ModelState.READY, ModelState.UNAVAILABLE] == states


@pytest.mark.row("J43")
def test_every_error_is_a_client_error() -> None:
    kinds = [
        errors.PyTritonClientClosedError,
        errors.PyTritonClientInferenceServerError,
        errors.PyTritonClientInvalidUrlError,
        errors.PyTritonClientModelDoesntSupportBatchingError,
        errors.PyTritonClientModelUnavailableError,
        errors.PyTritonClientQueueFullError,
        errors.PyTritonClientTimeoutError,
        errors.PyTritonClientValueError,
    ]

    assert all(issubclass(kind, errors.PyTritonClientError) for kind in kinds)
    assert issubclass(errors.PyTritonClientInvalidUrlError, errors.PyTritonClientValueError)


@pytest.mark.row("J41")
def test_futures(url: str) -> None:
    with FuturesModelClient(url, "add_sub", max_workers=4) as client:
        assert client.wait_for_model(10.0).result() is None
        assert 8 == client.model_config().result().max_batch_size
        samples = [client.infer_sample(A, B) for _ in range(50)]
        batch = client.infer_batch(INPUT0=A[None], INPUT1=B[None])
        for sample in samples:
            _check(sample.result())
        assert (1, 16) == batch.result()["OUTPUT0"].shape
        wrong = client.infer_sample(A, INPUT1=B)
        with pytest.raises(errors.PyTritonClientValueError, match="Use either positional"):
            wrong.result()
        _check(client.infer_sample(A, B).result())
    with pytest.raises(
        errors.PyTritonClientClosedError, match="FutureModelClient is already closed"
    ):
        client.infer_sample(A, B)


@pytest.mark.row("J41", "J43")
def test_futures_wait_for_a_thread_or_are_refused(server: Server, url: str) -> None:
    ids = [f"{kind}-{url[:4]}" for kind in ("held", "waiting", "cancelled", "last")]
    limits: Any = {"max_workers": 1, "max_queue_size": 1}

    with FuturesModelClient(url, "journal", **limits, non_blocking=True) as client:
        held = client.infer_sample(**_held(ids[0]))
        eventually(lambda: ids[0] in executions(server.journal), 30.0)
        cancelled = client.infer_sample(**_held(ids[2]))
        with pytest.raises(errors.PyTritonClientQueueFullError, match="Queue is full"):
            client.infer_sample(**_held(ids[1]))
        assert cancelled.cancel()
        waiting = client.infer_sample(**_held(ids[1]))
        for own_id in ids:
            release_execution(server.journal, own_id)

    assert [ids[0].encode(), ids[1].encode()] == [f.result()["ID"][0] for f in (held, waiting)]
    assert ids[2] not in executions(server.journal)


def test_a_full_queue_may_be_waited_for(server: Server) -> None:
    limits: Any = {"max_workers": 1, "max_queue_size": 1}
    with FuturesModelClient(server.url, "journal", **limits) as client:
        futures = [client.infer_sample(**_held("patient"))]
        release_execution(server.journal, "patient")
        futures += [client.infer_sample(**_held("patient")) for _ in range(5)]
        client.close(wait=False)

        assert [b"patient"] * 6 == [future.result(60.0)["ID"][0] for future in futures]


def test_a_full_queue_is_waited_for_as_long_as_a_response(server: Server) -> None:
    limits: Any = {"max_workers": 1, "max_queue_size": 1, "inference_timeout_s": SOON_S}
    with (
        ModelClient(server.url, "identity_fp32", access_token="secret") as operator,
        FuturesModelClient(server.url, "identity_fp32", **limits) as client,
    ):
        operator.unload_model()
        waits = [client.wait_for_model(60.0)]
        eventually(lambda: waits[0].running(), 30.0)
        waits.append(client.wait_for_model(60.0))
        with pytest.raises(errors.PyTritonClientQueueFullError):
            client.wait_for_model(60.0)
        operator.load_model()

        assert [None, None] == [wait.result(60.0) for wait in waits]


@pytest.mark.parametrize("limit", ["max_workers", "max_queue_size"])
def test_futures_need_a_thread_and_a_place(limit: str) -> None:
    limits: Any = {limit: 0}
    with pytest.raises(ValueError, match=f"{limit} must be greater than 0"):
        FuturesModelClient("localhost", "add_sub", **limits)


def test_futures_without_limits(url: str) -> None:
    with FuturesModelClient(url, "add_sub", max_workers=None, max_queue_size=None) as client:
        for future in [client.infer_sample(A, B) for _ in range(20)]:
            _check(future.result())


@pytest.mark.row("J42")
def test_tasks_of_an_event_loop_share_a_client(url: str) -> None:
    async def ask() -> None:
        async with AsyncioModelClient(url, "add_sub", lazy_init=False) as client:
            await client.wait_for_model(10.0)
            assert "add_sub" == (await client.model_config).model_name
            for outputs in await asyncio.gather(*(client.infer_sample(A, B) for _ in range(20))):
                _check(outputs)
            outputs = await client.infer_batch(INPUT0=A[None], INPUT1=B[None])
            assert (1, 16) == outputs["OUTPUT0"].shape
        with pytest.raises(errors.PyTritonClientClosedError):
            await client.infer_sample(A, B)

    asyncio.run(ask())


@pytest.mark.row("J42", "J43")
def test_the_errors_of_an_event_loop(server: Server, url: str) -> None:
    own_id = f"asyncio-{url[:4]}"

    async def refuse(kind: type[Exception], model: str, *inputs: Any, **options: Any) -> str:
        async with AsyncioModelClient(url, model, **options) as client:
            with pytest.raises(kind) as caught:
                await client.infer_sample(*inputs)
        return str(caught.value)

    async def ask() -> None:
        refused, late = errors.PyTritonClientInferenceServerError, errors.PyTritonClientTimeoutError
        text = await refuse(refused, "raising", ONES)
        assert text.startswith("Error occurred on Triton Inference Server side:\n ")
        assert "ValueError: on purpose" in text
        text = await refuse(late, "nowhere", ONES, init_timeout_s=SOON_S)
        assert "while waiting for model nowhere to be ready" in text
        held = _held(own_id).values()
        text = await refuse(late, "journal", *held, inference_timeout_s=SOON_S)
        assert "Timeout exceeded while running inference for journal" == text
        await refuse(RuntimeError, "string_upper", np.array(["a"]))
        await refuse(errors.PyTritonClientValueError, "identity_fp32", [1.0])

    asyncio.run(ask())
    release_execution(server.journal, own_id)


@pytest.mark.row("J42")
def test_responses_of_a_decoupled_model(grpc_url: str) -> None:
    async def collect(number: int) -> list[Any]:
        async with AsyncioDecoupledModelClient(grpc_url, "tokens") as client:
            return [o["TOKEN"][0] async for o in client.infer_sample(**_count(number))]

    for number in (3, 0):
        expected = [f"token{index}".encode() for index in range(number)]
        with DecoupledModelClient(grpc_url, "tokens") as client:
            streams = [client.infer_sample(**_count(number)) for _ in range(2)]
            for stream in streams:
                assert expected == [outputs["TOKEN"][0] for outputs in stream]
        assert expected == asyncio.run(collect(number))


@pytest.mark.row("J42")
def test_plain_and_decoupled_clients_name_each_other(server: Server, url: str) -> None:
    def refusal(client: ModelClient, **inputs: Any) -> str:
        with client, pytest.raises(errors.PyTritonClientInferenceServerError) as caught:
            client.infer_sample(**inputs)
        return str(caught.value)

    grpc_url = f"grpc://{server.grpc_address}"
    pair = {"INPUT0": A, "INPUT1": B}

    assert "Model config is decoupled. Use DecoupledModelClient instead." == refusal(
        ModelClient(url, "tokens"), **_count(1)
    )
    assert "Model config is coupled. Use ModelClient instead." == refusal(
        DecoupledModelClient(grpc_url, "add_sub"), **pair
    )
    with pytest.raises(errors.PyTritonClientValueError, match="only supported for grpc protocol"):
        DecoupledModelClient(server.url, "tokens")


@pytest.mark.row("J42")
def test_plain_and_decoupled_clients_of_an_event_loop_name_each_other(server: Server) -> None:
    grpc_url = f"grpc://{server.grpc_address}"

    async def plain() -> None:
        async with AsyncioModelClient(grpc_url, "tokens") as client:
            await client.infer_sample(**_count(1))

    async def decoupled(url: str, model: str, **inputs: Any) -> None:
        async with AsyncioDecoupledModelClient(url, model) as client:
            async for _ in client.infer_sample(**inputs):
                pass

    for call, text in (
        (plain(), "decoupled. Use AsyncioDecoupledModelClient instead"),
        (decoupled(grpc_url, "add_sub", INPUT0=A, INPUT1=B), "Use AsyncioModelClient instead"),
        (decoupled(server.url, "tokens", **_count(1)), "only supported for grpc protocol"),
    ):
        with pytest.raises(errors.PyTritonClientError, match=text):
            asyncio.run(call)


def test_a_stream_that_is_left_or_late_is_cancelled(server: Server, grpc_url: str) -> None:
    def cancelled() -> set[str]:
        return {r.id for r in read_journal(server.journal) if r.event == "cancelled"}

    with DecoupledModelClient(grpc_url, "tokens") as client:
        stream = client.infer_sample(**_count(100_000, delay_us=1000))
        assert b"token0" == next(stream)["TOKEN"][0]
        del stream
        eventually(lambda: "0" in cancelled(), 30.0)
    for scope, count, delay_us in (("response", 2, 3_000_000), ("stream", 100_000, 1000)):
        settings: Any = {"inference_timeout_s": SOON_S, "timeout_scope": scope}
        late = pytest.raises(errors.PyTritonClientTimeoutError, match="during inference request")
        with DecoupledModelClient(grpc_url, "tokens", **settings) as client, late:
            list(client.infer_sample(**_count(count, delay_us)))


def test_an_error_ends_a_stream(grpc_url: str) -> None:
    wrong = {"COUNT": np.array([1, 2], np.int32)}

    async def ask() -> None:
        async with AsyncioDecoupledModelClient(grpc_url, "tokens") as client:
            async for _ in client.infer_sample(**wrong):
                pass

    with (
        DecoupledModelClient(grpc_url, "tokens") as client,
        pytest.raises(errors.PyTritonClientInferenceServerError, match="unexpected shape"),
    ):
        list(client.infer_sample(**wrong))
    with pytest.raises(errors.PyTritonClientInferenceServerError, match="unexpected shape"):
        asyncio.run(ask())


def test_a_timeout_cancels_the_request(server: Server, grpc_url: str) -> None:
    ids: list[str] = []
    # until one is executed before it is given up
    while not executions(server.journal).keys() & {*ids}:
        ids.append(f"given-up-{len(ids)}")
        with (
            ModelClient(grpc_url, "journal", inference_timeout_s=SOON_S) as client,
            pytest.raises(errors.PyTritonClientTimeoutError),
        ):
            client.infer_sample(**_held(ids[-1]))
    eventually(lambda: any(has_seen_cancellation(server.journal, own_id) for own_id in ids), 30.0)
    for own_id in ids:
        release_execution(server.journal, own_id)
