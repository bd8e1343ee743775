"""A model that says its tensors lie where others' do: it fails, and nobody's bytes are shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.support.clients import infer_inputs
from tests.support.server import Server
from tests.support.waiting import eventually

SECRET = 1234.5
#: Another client's tensor, and that of who asks; both in the same segment.
SIZE = 400_000


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=("forger", "identity_fp32", "keeper")),
]


@pytest.fixture
def server(server: Server) -> Iterator[Server]:
    """After each others are served, too."""
    yield server
    ones = np.ones(SIZE // 4, np.float32)
    assert np.array_equal(ones, _infer(server, "identity_fp32", INPUT0=ones)["OUTPUT0"])
    assert "Traceback" not in server.log_text()


def _infer(server: Server, model: str, **arrays: Any) -> dict[str, Any]:
    with triton.InferenceServerClient(server.grpc_address) as client:
        answer = client.infer(model, infer_inputs(triton, **arrays), client_timeout=60)
        return {
            output.name: answer.as_numpy(output.name) for output in answer.get_response().outputs
        }


def _forge(server: Server, forged: Any) -> dict[str, Any]:
    document = np.array([json.dumps(forged).encode()], np.object_)
    return _infer(server, "forger", INPUT0=np.ones(SIZE // 4, np.float32), FORGE=document)


def _place(server: Server) -> list[int]:
    """Owner, segment, block, offset and size of what a client sends the model."""

    def seen() -> list[list[int]]:
        """Nothing where the tensor came with its request, as while room is being made for it."""
        return json.loads(_forge(server, None)["SEEN"][0])

    [place] = eventually(seen, 30, "a tensor by reference")
    return place


@pytest.fixture
def secret(server: Server) -> Iterator[None]:
    """Another client's request, that is being executed, with its tensor in memory."""
    array = np.full(SIZE // 4, SECRET, np.float32)
    with ThreadPoolExecutor(1) as beside:
        answering = beside.submit(
            lambda: _infer(server, "keeper", INPUT0=array, MS=np.array([1000], np.int32))
        )
        yield
        assert (answering.result()["OUTPUT0"] == SECRET + 1).all()


def _cases(owner: int, segment: int, block: int, offset: int, size: int) -> dict[str, Any]:
    """Return what is said of where the tensor lies, and which blocks are named with it."""
    place = [owner, segment, block]
    reference = [*place, offset, size]
    whole = [*place, 0, 4 * SIZE]
    return {
        "another's, named": {"reference": [*place[:2], 1, 0, SIZE], "blocks": [[*place[:2], 1]]},
        "another's, not named": {"reference": [*place[:2], 1, 0, SIZE], "blocks": []},
        "another's, as the given block": {"reference": whole, "blocks": [place]},
        "another owner's": {"reference": [1, *reference[1:]], "blocks": [[1, *place[1:]]]},
        "another segment's": {
            "reference": [owner, segment + 9, block, 0, SIZE],
            "blocks": [[owner, segment + 9, block]],
        },
        "beyond the segment": {"reference": [*place, 1 << 40, SIZE], "blocks": [place]},
        "longer than the segment": {
            "reference": [*place, 0, 1 << 40],
            "blocks": [place],
            "elements": 1 << 38,
        },
        "wraps around": {
            "reference": [*place, (1 << 63) - 4096, 1 << 62],
            "blocks": [place],
            "elements": 1 << 60,
        },
    }


@pytest.mark.parametrize("asks", [False, True], ids=["in a response", "in a question"])
def test_what_a_model_was_not_given_is_shown_to_nobody(
    server: Server, secret: None, asks: bool
) -> None:
    for name, forged in _cases(*_place(server)).items():
        try:
            shown = _forge(server, {**forged, "asks": asks})
        except InferenceServerException as error:
            text = str(error)
        else:
            raise AssertionError((name, {k: v.ravel()[:4] for k, v in shown.items()}))
        assert "memory" in text or "segment" in text, (name, text)
