"""The answer to one prompt as it grows: texts, tool calls, finish reasons, tokens.

Probabilities of tokens are read as vLLM's backend writes them: an output has a JSON text for each
choice, a list with an object for each new token, of the token that was taken, which is first, and
its alternatives.
"""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from zmqtriton.sdk.wire import InternalError, datatypes, tensors, wire
from zmqtriton_extras.openai.call_text import CallPart, CallReader, new_id
from zmqtriton_extras.openai.tensor_names import TensorNames

#: Probabilities of one token, as models tell them: its alternatives by their numbers.
EXAMPLE = '[{"791": {"decoded_token": "The", "logprob": -0.1, "rank": 1}}]'
#: A message of a model.
MESSAGE = '{"role": "assistant", "content": "hello"}'
#: Log probability of an impossible token in OpenAI's API; JSON has no infinity.
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
    """A token of a text, with the most probable alternatives."""

    taken: Alternative
    most_probable: list[Alternative]

    def document(self) -> dict[str, Any]:
        others = [one.document() for one in self.most_probable]
        return {**self.taken.document(), "top_logprobs": others}


def read_logprobs(output: str, data: bytes, limit: int) -> list[TokenLogprob]:
    """Return the tokens of a response, each with up to `limit` alternatives.

    Raises InternalError if the data are malformed.
    """
    try:
        steps = json.loads(data) if data.strip() else None
        return [_token(step, limit) for step in steps or [] if step]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InternalError(
            f"output '{output}' must hold probabilities of tokens, such as {EXAMPLE}"
        ) from None


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
    """Return the log probabilities of a choice of a chat."""
    return {"content": [token.document() for token in tokens], "refusal": None}


def completion_document(tokens: Sequence[TokenLogprob], offset: int) -> dict[str, Any]:
    """Return the log probabilities of a completion's choice, whose text begins at an offset."""
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


def parts_of_messages(output: str, messages: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the text of each message, and its calls as JSON.

    Raises InternalError for a malformed message.
    """
    texts, calls = [], []
    for data in messages:
        try:
            message = json.loads(data)
            message = {"content": message} if isinstance(message, str) else message
            text = message.get("content") or ""
            texts.append(text.encode())
            calls.append(json.dumps(message.get("tool_calls")).encode())
        except (ValueError, AttributeError, RecursionError):
            raise InternalError(
                f"output '{output}' must hold a message, such as {MESSAGE}"
            ) from None
    return texts, calls


def read_calls(output: str, data: bytes, first: int) -> list[CallPart]:
    """Return the calls of a response, numbered from `first` on; "" and null have no call.

    Each is `{"name", "arguments"}`, on its own or as the `function` of an object with an `id`.
    Raises InternalError if they are malformed.
    """
    if not data.strip():
        return []
    try:
        calls = json.loads(data)
    except (ValueError, RecursionError):
        raise InternalError(f"output '{output}' must hold JSON") from None
    if type(calls) not in (list, type(None)):
        raise InternalError(f"output '{output}' must hold a list of calls")
    return [_call(output, one, first + number) for number, one in enumerate(calls or [])]


def _call(output: str, document: Any, index: int) -> CallPart:
    outer = document if type(document) is dict else {}
    inner = outer.get("function", outer)
    name = inner.get("name") if type(inner) is dict else None
    if type(name) is not str or not name:
        raise InternalError(f"output '{output}' must hold a list of calls, each with its name")
    arguments = inner.get("arguments", {})
    text = arguments if type(arguments) is str else json.dumps(arguments, ensure_ascii=False)
    call_id = outer.get("id") if outer is not inner else None
    own_id = call_id if type(call_id) is str and call_id else new_id()
    return CallPart(index, *(_sendable(one) for one in (text, own_id, name)))


def _sendable(text: str) -> str:
    # JSON may have lone surrogates, UTF-8 has none
    return text.encode("utf-8", "replace").decode()


#: Bytes of text for one token, where the model does not count them.
_BYTES_PER_TOKEN = 4
_REASONS = ("stop", "length", "content_filter", "tool_calls")
_STOP, _CALLS = "stop", "tool_calls"
#: vLLM's, in a stream that goes on.
_NOT_YET = ("", "None")
_Decoder = codecs.getincrementaldecoder("utf-8")


class Addition(NamedTuple):
    """New parts of a choice: text, calls, probabilities."""

    #: The choice's.
    number: int
    text: str = ""
    calls: tuple[CallPart, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


class Call:
    """A call of a tool."""

    def __init__(self, first: CallPart) -> None:
        self.id = first.id
        self.name = first.name
        self._pieces: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self._pieces)

    def add(self, arguments: str) -> None:
        self._pieces.append(arguments)


class ChoiceRules(NamedTuple):
    """Rules for all choices of a request."""

    #: Choices for each prompt.
    limit: int = 1
    #: Each text begins with its prompt.
    has_echo: bool = False
    #: Texts are kept until the end; otherwise they are sent as they grow.
    are_kept: bool = True
    #: Makes the reader of calls in a text; None if there are none.
    new_reader: Callable[[], CallReader] | None = None
    #: Calls make the reason of the end; they do not if the client has forced one.
    are_calls_a_reason: bool = True
    is_parallel: bool = True
    #: Alternatives of each token; None if their probabilities are not told.
    logprobs: int | None = None


ONE_TEXT = ChoiceRules()


class Choice:
    """A text; bytes that are not UTF-8 become U+FFFD, responses may cut characters."""

    def __init__(self, beginning: str = "", rules: ChoiceRules = ONE_TEXT) -> None:
        self._decoder = _Decoder("replace")
        self._rules = rules
        self._reader = rules.new_reader() if rules.new_reader is not None else None
        self._pieces = [beginning]
        #: Number of bytes received.
        self.size = 0
        #: Tool calls so far, if the texts are kept.
        self.calls: list[Call] = []
        self.logprobs: list[TokenLogprob] = []
        self._call_count = 0
        self._reason = _STOP

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def reason(self) -> str:
        """The finish reason of the choice, such as "stop", "length" or "tool_calls"."""
        is_by_calls = self._call_count and self._rules.are_calls_a_reason
        return _CALLS if is_by_calls and self._reason == _STOP else self._reason

    @reason.setter
    def reason(self, reason: str) -> None:
        self._reason = reason if reason in _REASONS else _STOP

    @property
    def call_count(self) -> int:
        return self._call_count

    @property
    def estimated_tokens(self) -> int:
        return estimate_tokens(self.size)

    def take(self, data: bytes, *, is_final: bool = False) -> tuple[str, tuple[CallPart, ...]]:
        """Add new bytes; return the complete characters, and the parts of calls in them."""
        text = self._decoder.decode(data, is_final)
        self.size += len(data)
        if self._reader is None:
            pieces: list[str | CallPart] = [text]
        else:
            pieces = self._reader.feed(text) + (self._reader.end() if is_final else [])
        said = "".join(part for part in pieces if isinstance(part, str))
        if self._rules.are_kept:
            self._pieces.append(said)
        return said, self.add_calls([part for part in pieces if isinstance(part, CallPart)])

    def add_calls(self, parts: list[CallPart]) -> tuple[CallPart, ...]:
        """Add parts of calls; return the parts that the client wants."""
        if not self._rules.is_parallel:
            parts = [part for part in parts if part.number == 0]
        for part in parts:
            if part.name:
                self._call_count += 1
            if self._rules.are_kept:
                if part.name:
                    self.calls.append(Call(part))
                self.calls[-1].add(part.arguments)
        return tuple(parts)

    def add_logprobs(self, tokens: list[TokenLogprob]) -> None:
        if self._rules.are_kept:
            self.logprobs += tokens


class Choices:
    """All choices for one prompt."""

    def __init__(
        self,
        names: TensorNames,
        prompt: str,
        rules: ChoiceRules = ONE_TEXT,
        *,
        first_index: int = 0,
    ) -> None:
        """Set up; choices of other prompts have the indexes below the first index."""
        self._names = names
        self._prompt_bytes = len(prompt.encode())
        self._rules = rules
        self.first_index = first_index
        #: Text with which each choice begins.
        self.echo = prompt if rules.has_echo else ""
        self._prompt_tokens: int | None = None
        self._completion_tokens: int | None = None
        self.all = [Choice(self.echo, rules)]

    @property
    def size(self) -> int:
        """The bytes of all texts."""
        echoed = self._prompt_bytes * len(self.all) if self.echo else 0
        return echoed + sum(choice.size for choice in self.all)

    @property
    def most_echoed(self) -> int:
        """The greatest number of bytes that repetitions of the prompt can have."""
        return self._prompt_bytes * self._rules.limit if self.echo else 0

    @property
    def prompt_tokens(self) -> int:
        counted = self._prompt_tokens
        return estimate_tokens(self._prompt_bytes) if counted is None else counted

    @property
    def completion_tokens(self) -> int:
        if self._completion_tokens is not None:
            return self._completion_tokens
        return sum(choice.estimated_tokens for choice in self.all)

    def take(self, body: wire.ResponseBody) -> list[Addition]:
        """Add a response; return its additions to the choices.

        Raises InternalError for outputs that contradict their names.
        """
        texts: list[bytes] = []
        calls: list[bytes] = []
        logprobs: list[bytes] = []
        reasons: list[bytes] = []
        names = self._names
        for tensor in body.outputs:
            if tensor.name == names.message:
                texts, calls = parts_of_messages(names.message, _strings(tensor))
            elif tensor.name == names.text_output:
                texts = _strings(tensor)
            elif tensor.name == names.finish_reason:
                reasons = _strings(tensor)
            elif tensor.name == names.tool_calls:
                calls = _strings(tensor)
            elif tensor.name == names.logprobs and self._rules.logprobs is not None:
                logprobs = _strings(tensor)
            elif tensor.name == names.prompt_tokens and self._prompt_tokens is None:
                self._prompt_tokens = count_tokens(tensor)
            elif tensor.name == names.completion_tokens:
                self._completion_tokens = (self._completion_tokens or 0) + count_tokens(tensor)
        self._make_room(max(len(texts), len(calls)))
        self._take_reasons(reasons)
        return [
            self._add(index, _element(texts, index), _element(calls, index), tokens)
            for index, tokens in enumerate(self._tokens(logprobs))
            if max(len(texts), len(calls), len(logprobs)) > index
        ]

    def end(self) -> list[Addition]:
        """Return the kept beginning of a character or call, once the last response has come."""
        rests = [(i, *choice.take(b"", is_final=True)) for i, choice in enumerate(self.all)]
        return [Addition(i, text, calls) for i, text, calls in rests if text or calls]

    def _tokens(self, logprobs: list[bytes]) -> list[list[TokenLogprob]]:
        output, limit = self._names.logprobs, self._rules.logprobs or 0
        elements = [_element(logprobs, index) for index in range(len(self.all))]
        return [read_logprobs(output, data, limit) if data else [] for data in elements]

    def _add(self, index: int, text: bytes, calls: bytes, tokens: list[TokenLogprob]) -> Addition:
        choice = self.all[index]
        said, parts = choice.take(text)
        if calls:
            own = read_calls(self._names.tool_calls, calls, choice.call_count)
            parts += choice.add_calls(own)
        choice.add_logprobs(tokens)
        return Addition(index, said, parts, tuple(tokens))

    def _make_room(self, count: int) -> None:
        """Make choices for this number of texts."""
        limit = self._rules.limit
        if count > limit:
            raise InternalError(
                f"output '{self._names.text_output}' has {count} texts, but must have {limit}"
            )
        while len(self.all) < count:
            self.all.append(Choice(self.echo, self._rules))

    def _take_reasons(self, reasons: list[bytes]) -> None:
        for choice, data in zip(self.all, reasons, strict=False):
            reason = data.decode("utf-8", "replace")
            if reason not in _NOT_YET:
                choice.reason = reason


def _element(elements: list[bytes], index: int) -> bytes:
    return elements[index] if index < len(elements) else b""


def estimate_tokens(size: int) -> int:
    """Return an estimate of the tokens in a text of this many bytes."""
    return -(-size // _BYTES_PER_TOKEN)


def count_tokens(tensor: wire.Tensor) -> int:
    """Return the sum of a tensor's numbers. Raises InternalError if it has none."""
    if tensor.datatype == datatypes.BYTES:
        raise InternalError(f"output '{tensor.name}' must hold numbers")
    try:
        array: Any = tensors.to_numpy(tensor.datatype, [-1], tensor.data)
        return max(0, int(array.sum()))
    except (ValueError, KeyError, OverflowError):
        raise InternalError(f"output '{tensor.name}' must hold finite numbers") from None


def _strings(tensor: wire.Tensor) -> list[bytes]:
    if tensor.datatype != datatypes.BYTES:
        raise InternalError(f"output '{tensor.name}' must hold strings")
    try:
        return tensors.decode_bytes(tensor.data)
    except ValueError as error:
        raise InternalError(
            f"correct the model, output '{tensor.name}' is invalid: {error}"
        ) from None
