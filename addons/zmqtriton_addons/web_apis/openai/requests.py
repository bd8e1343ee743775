"""Requests for text as OpenAI's clients write them, read and checked.

What the model is to make of them goes to it as sampling parameters. Knows no model.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from zmqtriton_addons.web_apis.openai.problems import RefusedField

#: Choices of one request, for all of its prompts together.
MAX_CHOICES = 128
_MAX_STOPS = 64
_MAX_INTEGER = 2**63 - 1

_INTEGERS = {"min_tokens": 0, "max_tokens": 0, "max_completion_tokens": 0, "top_k": -1}
_SEEDS = ("seed",)
_NUMBERS = (
    *("temperature", "top_p", "frequency_penalty", "presence_penalty"),
    *("min_p", "repetition_penalty", "length_penalty"),
)
_BOOLEANS = (
    *("ignore_eos", "skip_special_tokens", "spaces_between_special_tokens"),
    "include_stop_str_in_output",
)
#: They change what an answer is, so they are refused and not ignored: all values but these.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "tools": (None, []),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "tool_choice": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}),
    "logprobs": (None, False, 0),
    "top_logprobs": (None, 0),
    "logit_bias": (None, {}),
    "best_of": (None, 1),
    "suffix": (None, ""),
    "modalities": (None, ["text"]),
    "audio": (None,),
}
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class TextRequest(NamedTuple):
    """A request for text."""

    model: str
    #: The messages of a chat, or else None.
    messages: list[dict[str, Any]] | None
    #: What is to be continued; empty for a chat.
    prompts: list[str]
    #: Of each prompt so many.
    choices: int
    is_streamed: bool
    has_usage_in_stream: bool
    #: Each text begins with its prompt.
    has_echo: bool
    #: By vLLM's names, `n` among them if it is not 1.
    sampling: dict[str, Any]


def read_chat(document: Any) -> TextRequest:
    """Read the document of a chat completion. Raises RefusedField."""
    fields = fields_of(document)
    return _text_request(fields, _messages(fields), [], has_echo=False)


def read_completion(document: Any) -> TextRequest:
    """Read the document of a completion. Raises RefusedField."""
    fields = fields_of(document)
    prompts = texts(fields, "prompt", MAX_CHOICES)
    return _text_request(fields, None, prompts, has_echo=_flag(fields, "echo"))


def fields_of(document: Any) -> dict[str, Any]:
    """Return the members of a document. Raises RefusedField if it has none."""
    if type(document) is not dict:
        raise RefusedField("the request must be a JSON object", "")
    return document


def model_name(fields: dict[str, Any]) -> str:
    """Return the model that a request names. Raises RefusedField."""
    name = fields.get("model")
    if type(name) is not str or not name:
        raise RefusedField("'model' must be the name of a model", "model")
    return name


def texts(fields: dict[str, Any], field: str, limit: int) -> list[str]:
    """Return the texts of a field that holds one or many. Raises RefusedField."""
    value = fields.get(field)
    found = [value] if type(value) is str else value
    if type(found) is list and len(found) > limit:
        raise RefusedField(f"'{field}' must not have more than {limit} elements", field)
    if type(found) is not list or not found or any(type(text) is not str for text in found):
        raise RefusedField(
            f"'{field}' must be a string or a list of strings; numbers of tokens are not supported",
            field,
        )
    return found


def _text_request(
    fields: dict[str, Any],
    messages: list[dict[str, Any]] | None,
    prompts: list[str],
    *,
    has_echo: bool,
) -> TextRequest:
    name = model_name(fields)
    for field, accepted in _REFUSED.items():
        if fields.get(field) not in accepted:
            raise RefusedField(f"'{field}' is not supported", field)
    choices = _integer(fields, "n", 1)
    choices = 1 if choices is None else choices
    if choices * max(1, len(prompts)) > MAX_CHOICES:
        raise RefusedField(f"'n' asks for more than {MAX_CHOICES} choices", "n")
    is_streamed = _flag(fields, "stream")
    return TextRequest(
        name,
        messages,
        prompts,
        choices,
        is_streamed,
        _has_usage(fields, is_streamed=is_streamed),
        has_echo,
        _sampling(fields, choices),
    )


def _messages(fields: dict[str, Any]) -> list[dict[str, Any]]:
    messages = fields.get("messages")
    if type(messages) is not list or not messages:
        raise RefusedField("'messages' must be a list of at least one message", "messages")
    for position, message in enumerate(messages):
        field = f"messages[{position}]"
        if type(message) is not dict:
            raise RefusedField(f"'{field}' must be an object", field)
        if message.get("role") not in _ROLES:
            raise RefusedField(
                f"'{field}.role' must be one of {', '.join(_ROLES)}", f"{field}.role"
            )
        if type(message.get("content")) not in (str, list, type(None)):
            raise RefusedField(
                f"'{field}.content' must be a string or a list of parts", f"{field}.content"
            )
    return messages


def _has_usage(fields: dict[str, Any], *, is_streamed: bool) -> bool:
    options = fields.get("stream_options")
    if options is None:
        return False
    if not is_streamed:
        raise RefusedField(
            "'stream_options' can only be used when 'stream' is true", "stream_options"
        )
    if type(options) is not dict:
        raise RefusedField("'stream_options' must be an object", "stream_options")
    return _flag(options, "include_usage")


def _sampling(fields: dict[str, Any], choices: int) -> dict[str, Any]:
    found: dict[str, Any] = {"n": choices} if choices > 1 else {}
    for field, least in _INTEGERS.items():
        found[field] = _integer(fields, field, least)
    for field in _SEEDS:
        found[field] = _integer(fields, field, -_MAX_INTEGER)
    for field in _NUMBERS:
        found[field] = _number(fields, field)
    for field in _BOOLEANS:
        found[field] = fields[field] if fields.get(field) is not None else None
        _flag(fields, field)
    found["stop"] = _stop(fields)
    # the newer name of OpenAI; models know the older one
    newer = found.pop("max_completion_tokens")
    found["max_tokens"] = found["max_tokens"] if newer is None else newer
    return {key: value for key, value in found.items() if value is not None}


def _stop(fields: dict[str, Any]) -> list[str] | None:
    value = fields.get("stop")
    if value is None or value == []:
        return None
    return texts(fields, "stop", _MAX_STOPS)


def _integer(fields: dict[str, Any], field: str, least: int) -> int | None:
    value = fields.get(field)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= _MAX_INTEGER:
        raise RefusedField(f"'{field}' must be an integer of at least {least}", field)
    return value


def _number(fields: dict[str, Any], field: str) -> float | None:
    value = fields.get(field)
    if value is None:
        return None
    if type(value) not in (int, float) or not -1e9 < value < 1e9:
        raise RefusedField(f"'{field}' must be a number", field)
    return float(value)


def _flag(fields: dict[str, Any], field: str) -> bool:
    value = fields.get(field)
    if type(value) not in (bool, type(None)):
        raise RefusedField(f"'{field}' must be true or false", field)
    return bool(value)
