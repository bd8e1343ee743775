"""Queue policies, with real clients and models that ask."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.support.clients import infer_inputs
from tests.support.scripted import GATE, add_model, generate
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

SHARED = True

EXPIRED = "Request timeout expired"
SCRIPT = 'return [reply("ok")]'
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
        self._gate = gate
        self._first = threads.submit(generate, server, model, GATE, str(gate))
        begun = gate.with_name(gate.name + ".begun")
        eventually(begun.exists, 60, "the instance is busy")

    def open(self) -> None:
        self._gate.touch()
        assert "through" == self._first.result()


def infer_grpc(server: Server, model: str, **options: Any) -> str:
    """Return what it says, or the status and the text of the error."""
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        try:
            result = client.infer(model, _inputs(""), **options)
        except InferenceServerException as error:
            return f"{error.status()}: {error.message()}"
    return str(result.as_numpy("TEXT")[0].decode())


def _inputs(argument: str) -> list[grpcclient.InferInput]:
    texts = {"SCRIPT": SCRIPT, "ARGUMENT": argument}
    arrays = {name: np.array([text.encode()], np.object_) for name, text in texts.items()}
    return infer_inputs(grpcclient, **arrays)


_GATES = itertools.count()


@contextmanager
def busy(server: Server, model: str, directory: Path) -> Iterator[Busy]:
    gate = directory / f"gate{next(_GATES)}"
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(16))
        stack.callback(gate.touch)  # whatever fails, nobody is left at the gate
        yield Busy(server, model, gate, threads)


@pytest.mark.row("D23", "E64")
def test_over_grpc_a_timeout_is_unavailable(server: Server, tmp_path: Path) -> None:
    with busy(server, "limited", tmp_path):
        answer = infer_grpc(server, "limited", timeout=100_000)

    assert f"StatusCode.UNAVAILABLE: {EXPIRED}" == answer


@pytest.mark.row("A61")
def test_a_model_s_timeout_expires_in_the_queue_of_the_other_one(
    server: Server, tmp_path: Path
) -> None:
    with busy(server, "limited", tmp_path) as model:
        said = generate(server, "asking", ASKS)
        model.open()

    assert f"UNAVAILABLE: {EXPIRED}" == said
    assert "executed" == generate(server, "asking", ASKS)
