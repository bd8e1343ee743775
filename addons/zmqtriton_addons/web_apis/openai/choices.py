"""The answer to one prompt as it grows: texts, why they ended, and counts of tokens."""

from __future__ import annotations

import codecs
from typing import Any

from zmqtriton_addons.web_apis.openai.tensor_names import TensorNames
from zmqtriton_floor.datatypes import BYTES
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.tensors import decode_bytes, to_numpy
from zmqtriton_floor.wire import ResponseBody, Tensor

#: Bytes of text for one token, where the model does not count them.
_BYTES_PER_TOKEN = 4
_REASONS = ("stop", "length", "content_filter", "tool_calls")
_STOP = "stop"
#: vLLM's, in a stream that goes on.
_NOT_YET = ("", "None")
_Decoder = codecs.getincrementaldecoder("utf-8")


class Choice:
    """One text; bytes that are no UTF-8 become U+FFFD, characters may be cut between responses."""

    def __init__(self, beginning: str = "", *, is_kept: bool = True) -> None:
        """Set up; a text that is not kept is sent as it grows."""
        self._decoder = _Decoder("replace")
        self._is_kept = is_kept
        self._pieces = [beginning]
        #: How many bytes have come.
        self.size = 0
        self.reason = _STOP

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def estimated_tokens(self) -> int:
        return estimate_tokens(self.size)

    def take(self, data: bytes, *, is_final: bool = False) -> str:
        """Add new bytes; return the complete characters."""
        text = self._decoder.decode(data, is_final)
        self.size += len(data)
        if self._is_kept:
            self._pieces.append(text)
        return text


class Choices:
    """All choices for one prompt."""

    def __init__(
        self,
        names: TensorNames,
        prompt: str,
        limit: int = 1,
        *,
        first_index: int = 0,
        has_echo: bool = False,
        are_kept: bool = True,
    ) -> None:
        """Set up for so many choices; those of other prompts stand before the first index.

        Texts that are not kept are sent as they grow.
        """
        self._names = names
        self._prompt_bytes = len(prompt.encode())
        self._limit = limit
        self.first_index = first_index
        #: What each choice begins with.
        self.echo = prompt if has_echo else ""
        self._prompt_tokens: int | None = None
        self._completion_tokens: int | None = None
        self._are_kept = are_kept
        self.all = [Choice(self.echo, is_kept=are_kept)]

    @property
    def size(self) -> int:
        """The bytes of all texts."""
        echoed = self._prompt_bytes * len(self.all) if self.echo else 0
        return echoed + sum(choice.size for choice in self.all)

    @property
    def most_echoed(self) -> int:
        """The bytes of all repetitions of the prompt that there may be."""
        return self._prompt_bytes * self._limit if self.echo else 0

    @property
    def prompt_tokens(self) -> int:
        counted = self._prompt_tokens
        return estimate_tokens(self._prompt_bytes) if counted is None else counted

    @property
    def completion_tokens(self) -> int:
        if self._completion_tokens is not None:
            return self._completion_tokens
        return sum(choice.estimated_tokens for choice in self.all)

    def take(self, body: ResponseBody) -> list[tuple[int, str]]:
        """Take a response; return what it adds to which choices.

        Raises InternalError for outputs that cannot be what their names say.
        """
        added: list[tuple[int, str]] = []
        for tensor in body.outputs:
            if tensor.name == self._names.text_output:
                added = self._take_texts(_strings(tensor))
            elif tensor.name == self._names.finish_reason:
                self._take_reasons(_strings(tensor))
            elif tensor.name == self._names.prompt_tokens and self._prompt_tokens is None:
                self._prompt_tokens = count_tokens(tensor)
            elif tensor.name == self._names.completion_tokens:
                self._completion_tokens = (self._completion_tokens or 0) + count_tokens(tensor)
        return added

    def end(self) -> list[tuple[int, str]]:
        """Return the kept beginning of a character, after the last response."""
        rests = [(i, choice.take(b"", is_final=True)) for i, choice in enumerate(self.all)]
        return [(i, rest) for i, rest in rests if rest]

    def _take_texts(self, texts: list[bytes]) -> list[tuple[int, str]]:
        if len(texts) > self._limit:
            raise InternalError(
                f"output '{self._names.text_output}' has {len(texts)} texts, {self._limit} of them "
                "were asked for"
            )
        while len(self.all) < len(texts):
            self.all.append(Choice(self.echo, is_kept=self._are_kept))
        return [(i, self.all[i].take(text)) for i, text in enumerate(texts)]

    def _take_reasons(self, reasons: list[bytes]) -> None:
        for choice, data in zip(self.all, reasons, strict=False):
            reason = data.decode("utf-8", "replace")
            if reason not in _NOT_YET:
                choice.reason = reason if reason in _REASONS else _STOP


def estimate_tokens(size: int) -> int:
    """Return how many tokens a text of so many bytes may have."""
    return -(-size // _BYTES_PER_TOKEN)


def count_tokens(tensor: Tensor) -> int:
    """Return the sum of its numbers. Raises InternalError if it has none."""
    if tensor.datatype == BYTES:
        raise InternalError(f"output '{tensor.name}' must hold numbers")
    try:
        array: Any = to_numpy(tensor.datatype, [-1], tensor.data)
        return max(0, int(array.sum()))
    except (ValueError, KeyError, OverflowError):
        raise InternalError(f"output '{tensor.name}' is invalid") from None


def _strings(tensor: Tensor) -> list[bytes]:
    if tensor.datatype != BYTES:
        raise InternalError(f"output '{tensor.name}' must hold strings")
    try:
        return decode_bytes(tensor.data)
    except ValueError as error:
        raise InternalError(f"output '{tensor.name}' is invalid: {error}") from None
