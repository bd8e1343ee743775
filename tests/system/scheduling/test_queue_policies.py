"""Queue policies, with real clients and models that ask."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.support.scripted import GATE, add_model, generate
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

SHARED = True

EXPIRED = "Request timeout expired"
#: Remembers that it was executed.
SEEN = """
self.kept.setdefault("seen", []).append(text_of(request))
return [reply("ok")]
"""
#: Asks a model whose instance waits at a gate, with a timeout.
ASKS = """
    answered = ask("limited", "return [reply('executed')]", timeout=100_000).exec()
    return [reply(answer_of(answered))]
"""
_MODELS = {
    "limited": """default_queue_policy { default_timeout_microseconds: 60000000
        allow_timeout_override: true max_queue_size: 2 }""",
}


def prepare(server: Server) -> None:
    for name, batching in _MODELS.items():
        add_model(server, "scripted", name, f"dynamic_batching {{ {batching} }}\n")
    add_model(server, "scripted", "asking")


class Busy:
    """A model whose only instance waits at a gate, until it is opened."""

    def __init__(self, server: Server, model: str, gate: Path, threads: ThreadPoolExecutor) -> None:
        self._server, self._model, self._gate, self._threads = server, model, gate, threads
        self._first = threads.submit(generate, server, model, GATE, str(gate))
        begun = gate.with_name(gate.name + ".begun")
        eventually(begun.exists, 60, "the instance is busy")

    def submit(self, text: str, **parameters: Any) -> Future[str]:
        """Returns when it is in the queue, or answered."""
        time.sleep(0.002)  # arrivals are told in milliseconds
        before = self.last_arrival
        arguments = (self._server, self._model, SEEN, text)
        future = self._threads.submit(infer_http, *arguments, **parameters)
        eventually(lambda: self.last_arrival > before, 60, f"{text} is queued")
        return future

    @property
    def last_arrival(self) -> int:
        return int(self._server.statistics(self._model)["last_inference"])

    def open(self) -> None:
        self._gate.touch()
        assert "through" == self._first.result()

    def seen(self) -> list[str]:
        """Return what was executed after the gate."""
        script = "return [reply(','.join(self.kept.pop('seen', [])))]"
        return [name for name in generate(self._server, self._model, script).split(",") if name]


def failures(server: Server, model: str) -> int:
    return int(server.statistics(model)["inference_stats"]["fail"]["count"])


def infer_http(
    server: Server,
    model: str,
    script: str = SEEN,
    argument: str = "",
    own_id: str = "",
    **parameters: Any,
) -> str:
    """Return what it says, or the status and the text of the error."""
    inputs = [
        {"name": name, "datatype": "BYTES", "shape": [1], "data": [text]}
        for name, text in (("SCRIPT", script), ("ARGUMENT", argument))
    ]
    document = {"id": own_id, "inputs": inputs, "parameters": parameters}
    status, answer = server.request_json(f"/v2/models/{model}/infer", document)
    return str(answer["outputs"][0]["data"][0]) if status == 200 else f"{status}: {answer['error']}"


def infer_grpc(server: Server, model: str, **options: Any) -> str:
    """Return what it says, or the status and the text of the error."""
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        try:
            result = client.infer(model, _inputs(""), **options)
        except InferenceServerException as error:
            return f"{error.status()}: {error.message()}"
    return str(result.as_numpy("TEXT")[0].decode())


def _inputs(argument: str) -> list[grpcclient.InferInput]:
    tensors = []
    for name, content in (("SCRIPT", SEEN), ("ARGUMENT", argument)):
        tensor = grpcclient.InferInput(name, [1], "BYTES")
        tensor.set_data_from_numpy(np.array([content.encode()], dtype=np.object_))
        tensors.append(tensor)
    return tensors


_GATES = itertools.count()


@contextmanager
def busy(server: Server, model: str, directory: Path) -> Iterator[Busy]:
    gate = directory / f"gate{next(_GATES)}"
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(16))
        stack.callback(gate.touch)  # whatever fails, nobody is left at the gate
        yield Busy(server, model, gate, threads)


@pytest.mark.row("C28", "C48", "E63")
def test_a_timeout_in_the_queue_is_told_while_the_instance_is_busy(
    server: Server, tmp_path: Path
) -> None:
    failed = failures(server, "limited")
    with busy(server, "limited", tmp_path) as model:
        asked_at = time.monotonic()
        answer = infer_http(server, "limited", timeout=200_000)
        took_s = time.monotonic() - asked_at
        model.open()
        seen = model.seen()

    assert (f"503: {EXPIRED}", []) == (answer, seen)
    assert took_s >= 0.2
    assert failed + 1 == failures(server, "limited")


@pytest.mark.row("D23", "E64")
def test_over_grpc_a_timeout_is_unavailable(server: Server, tmp_path: Path) -> None:
    with busy(server, "limited", tmp_path):
        answer = infer_grpc(server, "limited", timeout=100_000)

    assert f"StatusCode.UNAVAILABLE: {EXPIRED}" == answer


@pytest.mark.row("C48", "E63")
def test_one_more_than_may_wait_is_refused(server: Server, tmp_path: Path) -> None:
    with busy(server, "limited", tmp_path) as model:
        waiting = [model.submit("a"), model.submit("b")]
        over_http = infer_http(server, "limited", own_id="one")
        over_grpc = infer_grpc(server, "limited")
        model.open()
        answers = [future.result() for future in waiting]
        seen = model.seen()

    text = "Exceeds maximum queue size"
    assert f"503: [request id: one] {text}" == over_http
    assert f"StatusCode.UNAVAILABLE: [request id: <id_unknown>] {text}" == over_grpc
    assert (["ok", "ok"], ["a", "b"]) == (answers, seen)


@pytest.mark.row("A61")
def test_a_model_s_timeout_expires_in_the_queue_of_the_other_one(
    server: Server, tmp_path: Path
) -> None:
    with busy(server, "limited", tmp_path) as model:
        said = generate(server, "asking", ASKS)
        model.open()

    assert f"UNAVAILABLE: {EXPIRED}" == said
    assert "executed" == generate(server, "asking", ASKS)
