"""Batches of a real server that are limited by their cost, or have requests of like size."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.server import Server, tensor
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

#: Answers each request with the lengths of the texts that its batch has.
MODEL = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        rows = [one.inputs()[0].as_numpy() for one in requests]
        text = json.dumps([array.shape[1] for array in rows]).encode()
        outputs = [np.full([len(array), 1], text, np.object_) for array in rows]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("BATCH", each)]) for each in outputs]
"""
CONFIG = """
backend: "python"
max_batch_size: %d
dynamic_batching { }
input { name: "tokens" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }
output { name: "BATCH" data_type: TYPE_STRING dims: [ 1 ] }
"""
PARAMETER = 'parameters { key: "%s" value { string_value: "%s" } }\n'
COST = PARAMETER % ("BATCH_COST", "padded(tokens)") + PARAMETER % ("MAX_BATCH_COST", "12")
LIKE = PARAMETER % ("BATCH_LIKE", "shape(tokens)")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose models begin when six requests wait."""
    held = {"TRITONSERVER_DELAY_SCHEDULER": "6"}
    directory: Path = tmp_path_factory.mktemp("fitted") / "s"
    with Server(directory, environment=held, options=["--model-control-mode=explicit"]) as running:
        yield running


def load(server: Server, name: str, config: str) -> str:
    directory = server.repository / name
    (directory / "1").mkdir(parents=True)
    (directory / "1" / "model.py").write_text(MODEL)
    (directory / "config.pbtxt").write_text(config)
    return str(server.control_model("load", name))


def has_queued(server: Server, name: str, count: int) -> bool:
    return bool(server.request_json(f"/v2/models/{name}/load")[1]["queued"] == count)


def batches(server: Server, name: str, lengths: list[int]) -> list[list[int]]:
    """Return the batch of each of these requests, which come in this order."""

    def ask(length: int) -> list[int]:
        row = tensor("tokens", "FP32", [0.5] * length, [1, length])
        _, answer = server.infer_json(name, row)
        return [*json.loads(answer["outputs"][0]["data"][0])]

    with ThreadPoolExecutor(len(lengths)) as pool:
        answers = []
        for count, length in enumerate(lengths):
            eventually(functools.partial(has_queued, server, name, count), 60)
            answers.append(pool.submit(ask, length))
        return [answer.result(60) for answer in answers]


def test_a_batch_ends_before_its_cost_exceeds_the_budget(server: Server) -> None:
    assert "" == load(server, "by_cost", CONFIG % 8 + COST)

    [a, b, c, d, e, f] = batches(server, "by_cost", [4, 4, 3, 5, 20, 1])

    assert a == b == c == [4, 4, 3]
    assert [[5], [20], [1]] == [d, e, f], "a request above the budget is executed alone"


def test_requests_of_like_size_share_a_batch_and_the_saving_is_counted(server: Server) -> None:
    assert "" == load(server, "by_likeness", CONFIG % 3 + LIKE)

    answers = batches(server, "by_likeness", [10, 1, 9, 2, 8, 3])

    assert [[10, 9, 8], [1, 2, 3]] == [answers[0], answers[1]]
    page = server.metrics_text()
    for name, count in (("", 33), ("padded_", 39), ("padded_", 54)):
        order = "_in_order" if count == 54 else ""
        line = f'zmqtriton_batch_{name}elements{order}_total{{model="by_likeness",version="1"}}'
        assert f"{line} {count}" in page


def test_a_measure_of_what_the_model_lacks_fails_the_load_in_words(server: Server) -> None:
    error = load(server, "odd", CONFIG % 3 + LIKE.replace("tokens", "words"))

    assert "BATCH_LIKE measures 'words', but the inputs are: tokens" in error
