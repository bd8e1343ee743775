"""States of sequences that the server keeps for their models, with real clients."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from tests.support.clients import infer_inputs
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_START, _END = 1, 2


class Said(NamedTuple):
    after: int
    #: Of each in the batch: its sequence, and its inputs by name.
    batch: list[tuple[int | str, dict[str, list[Any]]]]


def _vary(server: Server, name: str, *changes: tuple[str, str]) -> Path:
    directory = server.add_model("stateful", name)
    config = directory / "config.pbtxt"
    text = config.read_text("utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    config.write_text(text, "utf-8")
    return directory


FRONTENDS = ("grpc",)
MODELS = ["stateful"]
OPTIONS = ["--model-control-mode=explicit", "--load-model=*"]


def prepare(server: Server) -> None:
    _vary(server, "oldest", ("direct { }", "oldest { max_candidate_sequences: 4 }"))
    _vary(server, "hidden", ('{ name: "AFTER", data_type: TYPE_INT32, dims: [ 1 ] },', ""))


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpclient.InferenceServerClient]:
    with httpclient.InferenceServerClient(server.url.removeprefix("http://")) as client:
        yield client


def _input(module: Any, value: int) -> list[Any]:
    return infer_inputs(module, VALUE=np.array([[value]], np.int32))


def _said(result: Any) -> Said:
    batch = [tuple(row) for row in json.loads(result.as_numpy("REPORT").item())]
    after = result.as_numpy("AFTER")
    return Said(-1 if after is None else after.item(), batch)


def _ask(client: Any, model: str, sequence: int | str, flags: int = 0, value: int = 1) -> Said:
    module = grpcclient if isinstance(client, grpcclient.InferenceServerClient) else httpclient
    result = client.infer(
        model,
        _input(module, value),
        sequence_id=sequence,
        sequence_start=bool(flags & _START),
        sequence_end=bool(flags & _END),
    )
    return _said(result)


@pytest.mark.row("E75")
@pytest.mark.parametrize("model", ["stateful", "oldest"])
@pytest.mark.parametrize("sequence", [7, "seven"])
def test_a_model_is_given_what_it_said_with_the_request_before(
    client: httpclient.InferenceServerClient, model: str, sequence: int | str
) -> None:
    steps = [(_START, 1), (0, 2), (0, 3), (_START, 4), (_END, 5), (_START | _END, 6)]

    said = [_ask(client, model, sequence, flags, value) for flags, value in steps]

    assert [101, 103, 106, 104, 109, 106] == [one.after for one in said]
    texts = [one.batch[-1][1]["TEXT_BEFORE"] for one in said]
    assert [[""], ["1"], ["12"], [""], ["4"], [""]] == texts


@pytest.mark.row("E75")
@pytest.mark.parametrize("model", ["stateful", "oldest"])
def test_sequences_that_share_batches_have_states_of_their_own(server: Server, model: str) -> None:
    def run(sequence: int) -> list[Said]:
        flags = [_START, 0, 0, 0, 0, 0, 0, _END]
        with grpcclient.InferenceServerClient(server.grpc_address) as client:
            return [_ask(client, model, sequence, flag, sequence) for flag in flags]

    sums = [[100 + sequence * step for step in range(1, 9)] for sequence in (1, 2, 3, 4)]

    def share_a_batch() -> bool:
        with ThreadPoolExecutor(4) as threads:
            said = list(threads.map(run, (1, 2, 3, 4)))
        assert sums == [[one.after for one in some] for some in said]
        batches = [one.batch for some in said for one in some]
        # What fills an empty place has a state too, and that is empty.
        fillers = [row[1] for batch in batches for row in batch if row[1]["READY"] == [0]]
        assert all([0] == filler["BEFORE"] for filler in fillers)
        return any(len(batch) > 1 for batch in batches)

    # Nothing keeps them apart or together; some time they meet.
    eventually(share_a_batch, 30, "a batch of several")


@pytest.mark.row("E75")
def test_a_state_travels_only_where_it_is_an_output_too(
    server: Server, client: httpclient.InferenceServerClient
) -> None:
    assert -1 == _ask(client, "hidden", 7, _START).after
    with grpcclient.InferenceServerClient(server.grpc_address) as grpc:
        assert [101] == _ask(grpc, "hidden", 7).batch[0][1]["BEFORE"]
        assert 102 == _ask(grpc, "stateful", 7, _START, 2).after

    outputs = [output["name"] for output in client.get_model_metadata("hidden")["outputs"]]
    assert ["REPORT"] == outputs


def test_states_begin_anew_after_the_death_of_the_broker(
    server: Server, client: httpclient.InferenceServerClient
) -> None:
    _ask(client, "stateful", 3, _START, 5)
    [broker] = server.pids()["broker"]
    os.kill(broker, signal.SIGKILL)

    with pytest.raises(InferenceServerException):
        _ask(client, "stateful", 3)
    assert 101 == _ask(client, "stateful", 3, _START | _END).after
