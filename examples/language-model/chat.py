"""A chat whose streams are computed together, by a transformer of one layer.

It knows the Zen of Python by heart, and nothing else: it goes on with the last words of the chat.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from network import CONTEXT, scores_of

from zmqtriton import End, Refused, model


class Piece(NamedTuple):
    output: str
    finish_reason: str | None = None


class Stream:
    def __init__(self, tokens: list[int], left: int) -> None:
        self.tokens, self.left = tokens, left


@model(streams=64, examples=[{"messages": [{"role": "user", "content": "Errors should"}]}])
class Chat:
    """Go on with a text, a letter of all streams at a time."""

    def __init__(self) -> None:
        self.weights = dict(np.load(Path(__file__).parent / "weights.npz"))
        self.letters = str(self.weights.pop("letters"))

    def admit(self, messages: list[dict], max_tokens: int = 60) -> Stream:
        said = str(messages[-1]["content"]) if messages else ""
        tokens = [self.letters.index(letter) for letter in said if letter in self.letters]
        if not tokens:
            raise Refused("say a few words of the Zen of Python, such as: Flat is")
        return Stream(tokens, max_tokens)

    def step(self, states: list[Stream]) -> list[Piece | End]:
        longest = max(min(len(state.tokens), CONTEXT) for state in states)
        tokens = np.zeros((len(states), longest), int)
        last = []
        for row, state in zip(tokens, states):
            recent = state.tokens[-CONTEXT:]
            row[: len(recent)] = recent
            last.append(len(recent) - 1)
        scores, _ = scores_of(self.weights, tokens)
        best = scores[np.arange(len(states)), last].argmax(-1)
        return [self.take(state, int(token)) for state, token in zip(states, best)]

    def take(self, state: Stream, token: int) -> Piece | End:
        state.tokens.append(token)
        state.left -= 1
        letter = self.letters[token]
        if letter == "\n":
            return End(Piece("", "stop"))
        return Piece(letter) if state.left else End(Piece(letter, "length"))
