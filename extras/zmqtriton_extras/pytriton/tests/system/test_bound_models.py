"""Functions that Triton binds, asked by every client: both halves of PyTriton's API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import zmq

from tests.support.server import free_ports
from zmqtriton_extras.pytriton.client import (
    AsyncioDecoupledModelClient,
    AsyncioModelClient,
    DecoupledModelClient,
    FuturesModelClient,
    ModelClient,
)
from zmqtriton_extras.pytriton.client.exceptions import (
    PyTritonClientInferenceServerError,
    PyTritonClientTimeoutError,
)
from zmqtriton_extras.pytriton.decorators import batch
from zmqtriton_extras.pytriton.model_config import ModelConfig, Tensor
from zmqtriton_extras.pytriton.triton import Triton, TritonConfig

pytestmark = pytest.mark.system

WORD = np.array([b"abc"])
WORDS = np.array([b"d", b"ef"])
ONES = np.ones(2, np.float32)


@batch
def lengths(**inputs: np.ndarray) -> list[np.ndarray]:
    """The length of the first input's word and of each of the second's together."""
    word, words = inputs.values()
    if word[0, 0] == b"wrong":
        raise ValueError("no such word")
    sums = [
        [len(w) + len(other) for other in row] for w, row in zip(word[:, 0], words, strict=True)
    ]
    return [np.array(sums, np.float32)]


def counting(requests: list[Any]) -> Iterator[list[dict[str, np.ndarray]]]:
    """Three responses, each greater by one."""
    for number in range(3):
        yield [{"OUTPUT_1": request["INPUT_1"] + number} for request in requests]


class Bound(NamedTuple):
    """A server with the models, and its addresses."""

    triton: Triton
    http: str
    grpc: str


@pytest.fixture(scope="module")
def bound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bound]:
    # libzmq's threads stay for the life of the process
    zmq.Context.instance().socket(zmq.SUB).close()
    http, grpc, metrics = free_ports(3)
    config = TritonConfig(
        http_address="127.0.0.1",
        http_port=http,
        grpc_port=grpc,
        metrics_port=metrics,
        log_file=tmp_path_factory.mktemp("bound") / "log",
    )
    floats = [Tensor(shape=(-1,), dtype=np.float32)]
    texts = [Tensor(shape=(1,), dtype=np.bytes_), Tensor(shape=(-1,), dtype=np.bytes_)]
    with Triton(config=config) as triton:
        triton.bind("Lengths", lengths, texts, floats, config=ModelConfig(max_batch_size=8))
        triton.bind("Counting", counting, floats, floats, config=ModelConfig(decoupled=True))
        served = Bound(triton, f"localhost:{http}", f"grpc://localhost:{grpc}")
        # What is opened at first use is no leak of the test that happens to be the first.
        for _ in range(2):
            _count_from_a_thread(served.grpc)
            asyncio.run(_count_from_a_task(served.grpc))
        yield served


def _count_from_a_thread(url: str) -> list[list[float]]:
    with DecoupledModelClient(url, "Counting") as client:
        return [outputs["OUTPUT_1"].tolist() for outputs in client.infer_sample(ONES)]


async def _count_from_a_task(url: str) -> list[list[float]]:
    async with AsyncioDecoupledModelClient(url, "Counting") as client:
        return [outputs["OUTPUT_1"].tolist() async for outputs in client.infer_sample(ONES)]


@pytest.fixture(params=["http", "grpc"])
def url(request: pytest.FixtureRequest, bound: Bound) -> str:
    return bound.http if request.param == "http" else bound.grpc


def test_samples_and_batches_from_threads_futures_and_tasks(url: str) -> None:
    async def ask() -> Any:
        async with AsyncioModelClient(url, "Lengths") as client:
            return await client.infer_sample(WORD, WORDS)

    with ModelClient(url, "Lengths") as client, FuturesModelClient(url, "Lengths") as futures:
        samples = [
            client.infer_sample(WORD, WORDS),
            client.infer_sample(INPUT_2=WORDS, INPUT_1=WORD),
            futures.infer_sample(WORD, WORDS).result(),
            asyncio.run(ask()),
        ]
        batch_of_two = client.infer_batch(np.array([WORD, [b""]]), np.array([WORDS, WORDS]))

    assert [[4.0, 5.0]] * 4 == [outputs["OUTPUT_1"].tolist() for outputs in samples]
    assert [[4.0, 5.0], [1.0, 2.0]] == batch_of_two["OUTPUT_1"].tolist()


def test_the_configuration_is_the_one_that_was_bound(url: str) -> None:
    with ModelClient(url, "Lengths") as client:
        config = client.model_config

    assert ("Lengths", 8, False) == (config.model_name, config.max_batch_size, config.decoupled)
    assert [("INPUT_1", (1,)), ("INPUT_2", (-1,))] == [
        (i.name, i.shape) for i in config.inputs or ()
    ]
    assert [np.bytes_, np.bytes_] == [tensor.dtype for tensor in config.inputs or ()]


def test_errors_of_a_function_reach_the_client(url: str) -> None:
    with ModelClient(url, "Lengths") as client:
        with pytest.raises(PyTritonClientInferenceServerError, match="ValueError: no such word"):
            client.infer_sample(np.array([b"wrong"]), WORDS)
        assert [4.0, 5.0] == client.infer_sample(WORD, WORDS)["OUTPUT_1"].tolist()


def test_responses_of_a_generator(bound: Bound) -> None:
    expected = [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]

    assert expected == _count_from_a_thread(bound.grpc)
    assert expected == asyncio.run(_count_from_a_task(bound.grpc))


def test_responses_to_a_batch(bound: Bound) -> None:
    batch_of_two = np.stack([ONES, ONES])

    async def ask() -> list[Any]:
        async with AsyncioDecoupledModelClient(bound.grpc, "Counting") as client:
            return [outputs async for outputs in client.infer_batch(batch_of_two)]

    with DecoupledModelClient(bound.grpc, "Counting") as client:
        answers = [list(client.infer_batch(batch_of_two)), asyncio.run(ask())]

    expected = [[[number, number]] * 2 for number in (1.0, 2.0, 3.0)]
    assert [expected] * 2 == [[o["OUTPUT_1"].tolist() for o in answer] for answer in answers]


def test_a_task_waits_for_the_model_before_it_begins_or_has_its_configuration(url: str) -> None:
    with ModelClient(url, "Lengths") as client:
        config = client.model_config

    async def ask(model: str, **options: Any) -> Any:
        async with AsyncioModelClient(url, model, **options) as client:
            return await client.infer_sample(WORD, WORDS)

    outputs = asyncio.run(ask("Lengths", lazy_init=False, model_config=config))
    assert [4.0, 5.0] == outputs["OUTPUT_1"].tolist()
    with pytest.raises(PyTritonClientTimeoutError, match="waiting for model Nowhere to be ready"):
        asyncio.run(ask("Nowhere", lazy_init=False, init_timeout_s=0.2))


def test_the_token_of_the_server_opens_what_is_restricted(bound: Bound, url: str) -> None:
    with (
        ModelClient(url, "Nowhere") as client,
        pytest.raises(PyTritonClientInferenceServerError, match="restricted, expecting"),
    ):
        client.load_model()
    with (
        ModelClient(url, "Nowhere", access_token=bound.triton.get_access_token()) as client,
        pytest.raises(PyTritonClientInferenceServerError, match="failed to load 'Nowhere'"),
    ):
        client.load_model()
