"""Batches that do not fill: the reason in `zmqtriton-ctl explain`, before and after its advice."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.standard.ctl.system.commands import ctl
from tests.support.clients import infer_inputs
from tests.support.server import Server

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(),
]
CONFIG = """backend: "python"
max_batch_size: 16
input [
  { name: "X" data_type: TYPE_FP32 dims: [ -1 ] RAGGED },
  { name: "O" data_type: TYPE_FP32 dims: [ 1 ] optional: true }
]
output { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }
"""
#: Waits for others, and does not compete with them for the cores.
MODEL = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.04)
        rows = [one.inputs()[0].shape()[0] for one in requests]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.ones([n, 1], np.float32))])
            for n in rows
        ]
"""
ROUNDS = 12
CLIENTS = 8
DELAY = "dynamic_batching { max_queue_delay_microseconds: %d }\n"
NO_DELAY = "dynamic_batching { }\n"
SEQUENCES = """sequence_batching {
  oldest { max_candidate_sequences: 8 max_queue_delay_microseconds: 200000 }
  control_input {
    name: "START"
    control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] }
  }
}
"""


class Batches:
    """A model with clients that measure its batches."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._numbers = itertools.count(1)

    def configure(
        self, more: str, *, ragged: bool = False, instances: int = 1, rows: int = 16
    ) -> None:
        """Load the model anew; its counts begin anew, too."""
        directory = self._server.repository / "small"
        (directory / "1").mkdir(parents=True, exist_ok=True)
        (directory / "1" / "model.py").write_text(MODEL)
        text = CONFIG.replace("RAGGED", "allow_ragged_batch: true" if ragged else "")
        text = text.replace("max_batch_size: 16", f"max_batch_size: {rows}")
        group = f"instance_group {{ count: {instances} kind: KIND_CPU }}\n"
        number = f'parameters {{ key: "n" value {{ string_value: "{next(self._numbers)}" }} }}\n'
        (directory / "config.pbtxt").write_text(text + more + group + number)
        error = self._server.control_model("load", "small")
        assert not error, error

    def run(
        self, clients: int, inputs: Callable[[int], dict[str, Any]], *, sequences: bool = False
    ) -> float:
        """Return the mean batch of clients that each ask again and again."""

        def ask(client: int) -> None:
            address = self._server.grpc_address
            with triton.InferenceServerClient(address) as connection:
                for number in range(ROUNDS if clients > 1 else 2 * ROUNDS):
                    arrays = infer_inputs(triton, **inputs(client))
                    more: dict[str, Any] = {}
                    if sequences:
                        more = {"sequence_id": client + 1, "sequence_start": number == 0}
                    connection.infer("small", arrays, **more)

        with ThreadPoolExecutor(clients) as threads:
            list(threads.map(ask, range(clients)))
        _, stats = self._server.request_json("/v2/models/small/stats")
        [entry] = stats["model_stats"]
        return float(entry["inference_count"] / entry["execution_count"])

    def explain(self) -> tuple[str, str]:
        """Return what is said of small batches, and the advice; "" for nothing."""
        findings = json.loads(ctl(self._server, "explain", "small", "-o", "json").stdout)
        texts = [(one["text"], one["advice"]) for one in findings if "its batches" in one["text"]]
        return texts[0] if texts else ("", "")


@pytest.fixture
def batches(server: Server) -> Batches:
    return Batches(server)


def plain(client: int) -> dict[str, Any]:
    return {"X": np.ones([1, 3], np.float32)}


def shaped(client: int) -> dict[str, Any]:
    return {"X": np.ones([1, 3 + client], np.float32)}


def unlike(client: int) -> dict[str, Any]:
    return {"X": np.ones([1, 3 + 97 * (client % 2)], np.float32)}


def partly(client: int) -> dict[str, Any]:
    return {**plain(client), **({"O": np.ones([1, 1], np.float32)} if client % 2 else {})}


def with_all(client: int) -> dict[str, Any]:
    return {**plain(client), "O": np.ones([1, 1], np.float32)}


def test_other_shapes_are_told_with_the_input_and_ragged_batches_fill(batches: Batches) -> None:
    batches.configure(DELAY % 20_000)
    before = batches.run(CLIENTS, shaped)
    text, advice = batches.explain()
    assert re.match(r"its batches have .* of 16: \d+ of \d+ ended at .* another shape of 'X'", text)
    assert "allow_ragged_batch: true" in advice

    batches.configure(DELAY % 20_000, ragged=True)

    assert batches.run(CLIENTS, shaped) > 2 * before
    assert "shape" not in batches.explain()[0]


def test_padding_is_told_and_likeness_saves_some(batches: Batches, server: Server) -> None:
    batches.configure(NO_DELAY, ragged=True, rows=2)
    batches.run(CLIENTS, unlike)
    text, advice = batches.explain()
    assert "if it pads 'X' to the longest" in text
    like = re.search(r"BATCH_LIKE: \"(shape\(X\))\"", advice)
    assert like is not None

    parameter = f'parameters {{ key: "BATCH_LIKE" value {{ string_value: "{like[1]}" }} }}\n'
    batches.configure(NO_DELAY + parameter, ragged=True, rows=2)
    batches.run(CLIENTS, unlike)

    assert ("", "") == batches.explain()
    found = re.findall(r"^zmqtriton_batch_padded.*small.* (\S+)$", server.metrics_text(), re.M)
    padded, in_order = map(float, found)
    assert padded < in_order


def test_optional_inputs_part_batches_until_all_send_them(batches: Batches) -> None:
    batches.configure(DELAY % 20_000)
    before = batches.run(CLIENTS, partly)
    text, advice = batches.explain()
    assert "ended at a request with other inputs ('O')" in text
    assert "send it always, or never" in advice

    batches.configure(DELAY % 20_000)

    assert batches.run(CLIENTS, with_all) > 1.5 * before


def test_one_client_is_told_to_send_more_and_does(batches: Batches) -> None:
    batches.configure(NO_DELAY)
    assert 1 == batches.run(1, plain)
    text, advice = batches.explain()
    assert "its batches have 1 of 16: most have all requests that there are" in text
    assert advice.startswith("Send more requests at the same time")

    batches.configure(NO_DELAY)

    assert batches.run(CLIENTS, plain) > 2


def test_what_a_delay_costs_one_client_is_told(batches: Batches) -> None:
    def is_told() -> bool:
        batches.configure(DELAY % 10_000)
        batches.run(1, plain)
        cost = "Until then max_queue_delay_microseconds costs each of them up to 10 ms"
        return cost in batches.explain()[1]

    # on a busy machine a request may wait for longer than the delay
    assert any(is_told() for _ in range(4))


@pytest.mark.parametrize(("instances", "more"), [(4, 1.5), (1, 1.2)])
def test_a_delay_is_advised_and_makes_larger_batches(
    batches: Batches, instances: int, more: float
) -> None:
    """Of several instances that are free, or of groups of clients that take turns at one."""

    def factor() -> float:
        batches.configure(NO_DELAY, instances=instances)
        before = batches.run(CLIENTS, plain)
        text, advice = batches.explain()
        assert "max_queue_delay_microseconds is 0" in text, text
        delay = re.search(r"max_queue_delay_microseconds: (\d+)", advice)
        assert delay is not None, advice

        batches.configure(DELAY % int(delay[1]), instances=instances)
        return batches.run(CLIENTS, plain) / before

    # a machine whose cores are all taken makes the batches alike
    assert any(factor() > more for _ in range(4))


def test_sequences_are_told_to_come_together_and_do(batches: Batches) -> None:
    batches.configure(SEQUENCES)
    assert 1 == batches.run(1, plain, sequences=True)
    text, advice = batches.explain()
    assert "its batches have 1 of 16: a batch has one request of each sequence" in text
    assert advice.startswith("More sequences at the same time fill it")

    batches.configure(SEQUENCES)

    assert batches.run(CLIENTS, plain, sequences=True) > 2
