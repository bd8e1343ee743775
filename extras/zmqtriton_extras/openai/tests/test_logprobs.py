from __future__ import annotations

import json
from typing import Any

import pytest

from zmqtriton_extras.openai.choices import (
    chat_document,
    completion_document,
    read_logprobs,
)
from zmqtriton_floor.errors import InternalError


def step(*alternatives: tuple[str, float, int]) -> dict[str, Any]:
    """Alternatives with their probabilities and ranks; the first was taken."""
    return {
        str(number): {"decoded_token": token, "logprob": logprob, "rank": rank}
        for number, (token, logprob, rank) in enumerate(alternatives)
    }


STEPS = [step(("é", -2.0, 3), ("a", -0.5, 1), ("b", -1.0, 2)), step((" x", float("-inf"), 1))]


def test_the_token_that_was_taken_need_not_be_the_most_probable() -> None:
    first, second = read_logprobs("logprobs", json.dumps(STEPS).encode(), 2)

    assert first.taken == ("é", -2.0)
    assert first.most_probable == [("a", -0.5), ("b", -1.0)]
    # JSON has no infinity
    assert second.taken == (" x", -9999.0)


def test_a_chat_has_bytes_and_alternatives() -> None:
    tokens = read_logprobs("logprobs", json.dumps(STEPS[:1]).encode(), 1)

    alternative = {"token": "a", "logprob": -0.5, "bytes": [97]}
    token = {"token": "é", "logprob": -2.0, "bytes": [195, 169], "top_logprobs": [alternative]}
    assert {"content": [token], "refusal": None} == chat_document(tokens)


def test_a_completion_has_offsets() -> None:
    tokens = read_logprobs("logprobs", json.dumps(STEPS).encode(), 1)

    assert completion_document(tokens, 7) == {
        "text_offset": [7, 8],
        "token_logprobs": [-2.0, -9999.0],
        "tokens": ["é", " x"],
        "top_logprobs": [{"a": -0.5}, {" x": -9999.0}],
    }


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"[null, {}]"])
def test_there_need_be_no_tokens(data: bytes) -> None:
    assert read_logprobs("logprobs", data, 1) == []


@pytest.mark.parametrize(
    "data", [b"{", b"7", b"[7]", b'[{"1": 7}]', b'[{"1": {"rank": 1}}]', b"[" * 100_000, b"\xff"]
)
def test_what_is_no_list_of_tokens_is_the_model_s_error(data: bytes) -> None:
    with pytest.raises(InternalError, match="hold probabilities of tokens, such as"):
        read_logprobs("logprobs", data, 1)
