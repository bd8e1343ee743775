"""The step that counts the tokens of each request to a model that makes text.

A model counts them itself in the outputs that OpenAI's routes read, too (`num_output_tokens`); of
one that does not, a response with a text is a token, and tokens of prompts are not known.
"""

from __future__ import annotations

import orjson

from zmqtriton_addons.capture.line import Line
from zmqtriton_addons.token_metrics import SERVICE
from zmqtriton_addons.web_apis.openai.choices import count_tokens
from zmqtriton_addons.web_apis.openai.tensor_names import TensorNames, names_of
from zmqtriton_floor.endpoints import local_service_path
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.wire import ResponseBody, Tensor
from zmqtriton_frontends.entrance import Ask
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.inference import CheckedRequest, ModelVersion, now_ns

#: The length before an element of BYTES.
_PREFIX_BYTES = 4
_MAX_MODELS = 10_000


class CountTokens:
    def __init__(self, line: Line) -> None:
        self._line = line
        #: The tensors by generation; None for a model that makes no text.
        self._names: dict[int, TensorNames | None] = {}

    def __call__(self, ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        model = checked.model
        if model.generation not in self._names:
            if len(self._names) >= _MAX_MODELS:  # generations of a server that reloads for ever
                self._names.clear()
            self._names[model.generation] = text_names(model)
        names = self._names[model.generation]
        if names is None:
            return checked
        return checked.with_observer(Tokens(self._line, model, names, ask.begun_ns or now_ns()))


class Tokens:
    """An observer, which sends one line at the end."""

    context = ""

    def __init__(self, line: Line, model: ModelVersion, names: TensorNames, begun_ns: int) -> None:
        self._line = line
        self._model = model
        self._names = names
        self._begun_ns = begun_ns
        self._first_ns = self._last_ns = 0
        self._texts = 0
        self._prompt: int | None = None
        self._reported: int | None = None
        self._has_ended = False

    def take(self, response: ResponseBody) -> None:
        names = self._names
        for tensor in response.outputs:
            if tensor.name == names.text_output and len(tensor.data) > _PREFIX_BYTES:
                self._last_ns = now_ns()
                self._first_ns = self._first_ns or self._last_ns
                self._texts += 1
            elif tensor.name == names.prompt_tokens and self._prompt is None:
                self._prompt = _count(tensor)
            elif tensor.name == names.completion_tokens:
                self._reported = (self._reported or 0) + _count(tensor)

    def fail(self, error: Exception) -> None:
        """Count tokens of the responses before it, too."""

    def end(self, sending: str) -> None:
        if self._has_ended or not self._line.has_room(0):
            return
        self._has_ended = True
        tokens = self._texts if self._reported is None else self._reported
        first_s = per_token_s = None
        if self._names.is_decoupled and self._texts:
            first_s = (self._first_ns - self._begun_ns) / 1e9
            if self._texts > 1 and tokens > 1:
                per_token_s = (self._last_ns - self._first_ns) / 1e9 / (tokens - 1)
        model = self._model.name, str(self._model.version)
        row = [*model, self._prompt, tokens, first_s, per_token_s]
        self._line.send(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))


def count_tokens_of(gateway: Gateway) -> CountTokens:
    """Make the step of a process."""
    path = local_service_path(gateway.settings.server.runtime_directory, SERVICE)
    return CountTokens(Line(path))


def text_names(model: ModelVersion) -> TensorNames | None:
    """Return the tensors of a model whose tokens are counted; None for another."""
    names = names_of(model)
    counts = names.is_decoupled or names.completion_tokens
    return names if names.text_output and counts else None


def _count(tensor: Tensor) -> int:
    try:
        return count_tokens(tensor)
    except InternalError:
        return 0  # OpenAI's routes say so
