"""The step that counts the tokens of each request to a model that makes text, and limits them.

A model may count them itself, in outputs that OpenAI's routes also read (`num_output_tokens`). If
it does not, tokens of prompts are unknown, each response with a text in a stream counts as a token,
and the size of a text in one piece gives the same estimate as in `usage`.

The tokens of a request are known at its end. Until then it reserves as many as its model's requests
usually take, so that not all simultaneous requests pass. The metrics get the tokens of an open
stream once a second.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from weakref import WeakSet

import orjson

from zmqtriton.sdk.frontend import Ask, CheckedRequest, Gateway, ModelVersion, now_ns
from zmqtriton.sdk.lines.line import Line
from zmqtriton.sdk.models import config_parameter
from zmqtriton.sdk.process import local_service_path
from zmqtriton.sdk.wire import Grant, InternalError, errors, tensors, wire
from zmqtriton_extras.openai.choices import count_tokens, estimate_tokens
from zmqtriton_extras.openai.tensor_names import TensorNames, names_of
from zmqtriton_extras.openai.token_metrics.allowances import Allowances, Counted, Key
from zmqtriton_extras.openai.token_metrics.texts import SERVICE

#: The length before an element of BYTES.
_PREFIX_BYTES = 4
_MAX_MODELS = 10_000
#: The texts of a larger tensor count as one.
_MAX_EXACT_BYTES = 1 << 20
#: The share of the newest request in the usual tokens of a model.
_NEWEST = 0.25
_YES = ("true", "1", "yes", "on")
#: First line of a frontend, which subscribes to news.
HELLO = b"[]\n"
_READ_BYTES = 64 << 10
#: Interval between two reports of the tokens of an open stream.
_REPORT_EVERY_NS = 1_000_000_000


class Exchange(Line):
    """The way from a frontend to the process of tokens, and back."""

    def __init__(
        self, path: str, take: Callable[[bytes], None], memory: Callable[[], bytes] = bytes
    ) -> None:
        """Set up; `take` gets lines from the process, `memory` has lines for a new process."""
        super().__init__(path)
        self._take = take
        self._memory = memory
        self._rest = b""

    def close(self) -> None:
        if self._socket is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
        super().close()

    def _connect(self) -> None:
        super()._connect()
        if self._socket is not None and self._loop is not None:
            self._rest = b""
            self._loop.add_reader(self._socket, self._receive)
            self.send(HELLO + self._memory())

    def _receive(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()  # it is being replaced
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)


class TokensUsedUp(errors.LimitExceeded):
    """Raised for a client whose bearer token has used up its LLM tokens for now."""

    def __init__(self, per_minute: int, wait_s: float) -> None:
        super().__init__(
            f"The token may use {per_minute} tokens of text a minute, retry after {wait_s:.3g} s"
        )
        self.headers = (("Retry-After", str(math.ceil(wait_s))),)


class CountTokens:
    def __init__(self, path: str) -> None:
        """Set up with the socket of the process that adds up."""
        self._allowances = Allowances()
        self._exchange = Exchange(
            path,
            self._take,
            lambda: self._allowances.describe(now_ns()),
        )
        #: The tensors by generation; None for a model that makes no text.
        self._names: dict[int, TensorNames | None] = {}
        #: Tokens of a usual request, by generation.
        self._usual: dict[int, float] = {}
        #: Unfinished requests of bearer tokens with a limit. Weak, because a later step can refuse
        #: a request, whose observer then never ends.
        self._under_way: defaultdict[Key, WeakSet[Tokens]] = defaultdict(WeakSet)

    def _take(self, line: bytes) -> None:
        self._allowances.take(orjson.loads(line), now_ns())

    def __call__(self, ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        model = checked.model
        if model.generation not in self._names:
            if len(self._names) >= _MAX_MODELS:  # generations of a server that reloads for ever
                self._names.clear()
                self._usual.clear()
            self._names[model.generation] = text_names(model)
        names = self._names[model.generation]
        if names is None:
            return checked
        grant = ask.grant
        tokens = Tokens(self, model, names, ask.begun_ns or now_ns(), grant)
        if grant is not None and grant.tokens_per_minute:
            self._admit(grant)
            tokens.held = max(1, round(self._usual.get(model.generation, 1)))
            self._under_way[grant.name, grant.tokens_per_minute].add(tokens)
        return checked.with_observer(tokens)

    def _admit(self, grant: Grant) -> None:
        has_line, at_ns = self._exchange.has_room(0), now_ns()
        per_minute = grant.tokens_per_minute
        key = grant.name, per_minute
        held = sum(tokens.held for tokens in self._under_way.get(key, ()))
        ready_ns = self._allowances.ready_ns(key, at_ns, held)
        if ready_ns:
            if has_line:
                self._exchange.send(orjson.dumps(grant.name, option=orjson.OPT_APPEND_NEWLINE))
            raise TokensUsedUp(per_minute, (ready_ns - at_ns) / 1e9)

    def tell_made(self, model: ModelVersion, made: int) -> bool:
        """Report tokens of a request that continues; False if the process is too busy for them."""
        has_room = self._exchange.has_room(0)
        if has_room:
            row = {"model": model.name, "version": str(model.version), "made": made}
            self._exchange.send(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        return has_room

    def count(self, tokens: Tokens, generation: int, request: Counted) -> None:
        """Count an ended request."""
        count = (request.prompt or 0) + request.made
        if count:  # a request that failed says nothing about the next one
            usual = self._usual.get(generation, count)
            self._usual[generation] = usual + _NEWEST * (count - usual)
        if request.per_minute:
            # what this frontend knows counts for its next request; the others are told
            key = request.token, request.per_minute
            under_way = self._under_way[key]
            under_way.discard(tokens)
            if not under_way:
                del self._under_way[key]
            self._allowances.use(key, count, now_ns())
        if self._exchange.has_room(0):
            self._exchange.send(orjson.dumps([*request], option=orjson.OPT_APPEND_NEWLINE))


class Tokens:
    """An observer that reports its request at the end."""

    context = ""

    def __init__(
        self,
        counting: CountTokens,
        model: ModelVersion,
        names: TensorNames,
        begun_ns: int,
        grant: Grant | None,
    ) -> None:
        self._counting = counting
        self._model = model
        self._names = names
        self._grant = grant
        self._begun_ns = begun_ns
        self._first_ns = self._last_ns = 0
        self._texts = 0
        self._prompt: int | None = None
        self._reported: int | None = None
        self._has_ended = False
        #: Tokens that the metrics have already, and the time of the next report to them.
        self._told = 0
        self._report_from_ns = begun_ns + _REPORT_EVERY_NS
        #: Tokens that other requests of its bearer token cannot use until it has ended.
        self.held = 0

    def take(self, response: wire.ResponseBody) -> None:
        names = self._names
        for tensor in response.outputs:
            if tensor.name == names.text_output and len(tensor.data) > _PREFIX_BYTES:
                self._last_ns = now_ns()
                self._first_ns = self._first_ns or self._last_ns
                is_whole = not names.is_decoupled
                self._texts += estimate(tensor) if is_whole else 1
            elif tensor.name == names.prompt_tokens and self._prompt is None:
                self._prompt = _count(tensor)
            elif tensor.name == names.completion_tokens:
                self._reported = (self._reported or 0) + _count(tensor)
        if self.held:
            self.held = max(self.held, (self._prompt or 0) + self._made)
        if self._last_ns > self._report_from_ns:
            self._report()

    def _report(self) -> None:
        """Report tokens since the last report, unless the model has metrics of its own."""
        self._report_from_ns = self._last_ns + _REPORT_EVERY_NS
        more = self._made - self._told
        if more > 0 and not has_engine_metrics(self._model):
            self._told += more * self._counting.tell_made(self._model, more)

    @property
    def _made(self) -> int:
        return self._texts if self._reported is None else self._reported

    def fail(self, error: Exception) -> None:
        """Count the tokens of the responses before the error as well."""

    def end(self, sending: str) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        tokens = self._made
        first_s = per_token_s = None
        if self._names.is_decoupled and self._texts:
            first_s = (self._first_ns - self._begun_ns) / 1e9
            if self._texts > 1 and tokens > 1:
                per_token_s = (self._last_ns - self._first_ns) / 1e9 / (tokens - 1)
        grant = self._grant
        client = ("", 0) if grant is None else (grant.name, grant.tokens_per_minute)
        model = self._model.name, str(self._model.version)
        request = Counted(*model, self._prompt, tokens, first_s, per_token_s, *client)
        request = request._replace(is_reported=has_engine_metrics(self._model), told=self._told)
        self._counting.count(self, self._model.generation, request)


def count_tokens_of(gateway: Gateway) -> CountTokens:
    """Make the step of a process."""
    return CountTokens(local_service_path(gateway.settings.server.runtime_directory, SERVICE))


def text_names(model: ModelVersion) -> TensorNames | None:
    """Return the tensors of a model whose tokens are counted; None for another."""
    names = names_of(model)
    counts = names.is_decoupled or names.completion_tokens or names.makes_chats
    return names if names.text_output and counts else None


def has_engine_metrics(model: ModelVersion) -> bool:
    """Return whether the page has the metrics of an engine inside the model."""
    return config_parameter(model.config, "REPORT_CUSTOM_METRICS").lower() in _YES


def _count(tensor: wire.Tensor) -> int:
    try:
        return count_tokens(tensor)
    except InternalError:
        return 0  # OpenAI's routes say so


def estimate(tensor: wire.Tensor) -> int:
    """Estimate the tokens in the elements of a text tensor."""
    if len(tensor.data) > _MAX_EXACT_BYTES:  # all clients of this process would wait
        return estimate_tokens(len(tensor.data) - _PREFIX_BYTES)
    try:
        return sum(estimate_tokens(len(text)) for text in tensors.decode_bytes(tensor.data))
    except ValueError:
        return 1  # the model's malformed text, which its client cannot read
