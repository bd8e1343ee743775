"""Probabilities of tokens: read as vLLM's backend tells them, written as OpenAI's API does.

An output has a JSON text for each choice: a list with an object for each new token, of the token
that was taken, which is first, and its alternatives.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from zmqtriton_floor.errors import InternalError

#: As OpenAI tells a token that is impossible; JSON has no infinity.
_LEAST = -9999.0


class Alternative(NamedTuple):
    token: str
    logprob: float

    def document(self) -> dict[str, Any]:
        return {
            "token": self.token,
            "logprob": self.logprob,
            "bytes": list(self.token.encode()),
        }


class TokenLogprob(NamedTuple):
    """A token of a text and the most probable ones in its place."""

    taken: Alternative
    most_probable: list[Alternative]

    def document(self) -> dict[str, Any]:
        others = [one.document() for one in self.most_probable]
        return {**self.taken.document(), "top_logprobs": others}


def read_logprobs(output: str, data: bytes, limit: int) -> list[TokenLogprob]:
    """Return the tokens of a response, each with so many alternatives.

    Raises InternalError if it has no such tokens.
    """
    try:
        steps = json.loads(data) if data.strip() else None
        return [_token(step, limit) for step in steps or [] if step]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InternalError(f"output '{output}' does not hold probabilities of tokens") from None


def _token(step: dict[str, Any], limit: int) -> TokenLogprob:
    alternatives = [
        (int(one.get("rank") or 0), Alternative(_text(one), _logprob(one["logprob"])))
        for one in step.values()
    ]
    # they need not be in the order of their ranks: the token that was taken comes first
    ordered = sorted(alternatives, key=lambda ranked: ranked[0])
    return TokenLogprob(alternatives[0][1], [one for _, one in ordered[:limit]])


def _text(one: dict[str, Any]) -> str:
    text = one.get("decoded_token")
    return str("" if text is None else text).encode("utf-8", "replace").decode()


def _logprob(value: Any) -> float:
    number = float(value)
    return max(number, _LEAST) if not math.isnan(number) else _LEAST


def chat_document(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
    """Return what a choice of a chat has."""
    return {"content": [token.document() for token in tokens], "refusal": None}


def completion_document(tokens: Sequence[TokenLogprob], offset: int) -> dict[str, Any]:
    """Return what a choice of a completion has; its text begins at an offset."""
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.taken.token)
    return {
        "text_offset": offsets,
        "token_logprobs": [token.taken.logprob for token in tokens],
        "tokens": [token.taken.token for token in tokens],
        "top_logprobs": [dict(token.most_probable) for token in tokens],
    }
