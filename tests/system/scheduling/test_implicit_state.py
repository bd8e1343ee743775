"""States of sequences that the server keeps for their models, with real clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import tritonclient.http as httpclient

from tests.support.clients import infer_inputs
from tests.support.server import Copy, Server

_START, _END = 1, 2


class Said(NamedTuple):
    after: int
    #: Of each in the batch: its sequence, and its inputs by name.
    batch: list[tuple[int | str, dict[str, list[Any]]]]


pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(
        models=[
            "stateful",
            Copy(
                "stateful", "oldest", edit=("direct { }", "oldest { max_candidate_sequences: 4 }")
            ),
        ],
    ),
]


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpclient.InferenceServerClient]:
    with httpclient.InferenceServerClient(server.url.removeprefix("http://")) as client:
        yield client


def _ask(client: Any, model: str, sequence: int | str, flags: int = 0, value: int = 1) -> Said:
    result = client.infer(
        model,
        infer_inputs(httpclient, VALUE=np.array([[value]], np.int32)),
        sequence_id=sequence,
        sequence_start=bool(flags & _START),
        sequence_end=bool(flags & _END),
    )
    batch = [tuple(row) for row in json.loads(result.as_numpy("REPORT").item())]
    return Said(result.as_numpy("AFTER").item(), batch)


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
