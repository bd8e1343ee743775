"""The fields of requests: tables of their types and ranges, and functions to read them.

Knows documents of clients, but no model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from zmqtriton_extras.openai.problems import RefusedField

_MAX_INTEGER = 2**63 - 1
_MAX_NUMBER = 1e9
#: Stop texts of one request.
_MAX_STOPS = 64
#: Tokens of one request that are made more or less likely, and by how much.
_MAX_BIASES, _MAX_BIAS = 1024, 100


class Range(NamedTuple):
    """The values that a number may have."""

    least: float = -_MAX_NUMBER
    greatest: float = _MAX_NUMBER
    is_integer: bool = False

    @property
    def text(self) -> str:
        kind = "an integer" if self.is_integer else "a number"
        if self.greatest < _MAX_NUMBER:
            return f"{kind} from {self.least:g} to {self.greatest:g}"
        return f"{kind} of at least {self.least:g}" if self.least > -_MAX_NUMBER else kind

    def has(self, value: Any) -> bool:
        if type(value) is int:
            return self.least <= value <= self.greatest
        # NaN is in no range
        return not self.is_integer and type(value) is float and self.least <= value <= self.greatest


def _integer(least: float, greatest: float = _MAX_INTEGER) -> Range:
    return Range(least, greatest, is_integer=True)


#: Fields of sampling by the name that clients and models share, with OpenAI's ranges or vLLM's own.
SAMPLING = {
    "min_tokens": _integer(0),
    "max_tokens": _integer(0),
    "max_completion_tokens": _integer(0),
    "top_k": _integer(-1),
    "seed": _integer(-_MAX_INTEGER),
    "temperature": Range(0, 2),
    "top_p": Range(0, 1),
    "frequency_penalty": Range(-2, 2),
    "presence_penalty": Range(-2, 2),
    "min_p": Range(0, 1),
    "repetition_penalty": Range(),
    "length_penalty": Range(),
}
FLAGS = (
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "include_stop_str_in_output",
)
CHOICES = _integer(1)
#: Alternatives of each token.
COMPLETION_LOGPROBS, TOP_LOGPROBS = _integer(0, 5), _integer(0, 20)
_BIAS = Range(-_MAX_BIAS, _MAX_BIAS)


def fields_of(document: Any) -> dict[str, Any]:
    """Return the members of a document. Raises RefusedField if it is no object."""
    if type(document) is not dict:
        raise RefusedField("the request must be a JSON object", "")
    return document


def refuse(fields: dict[str, Any], accepted: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise RefusedField for a field whose value is not among the accepted ones."""
    for field, values in accepted.items():
        if fields.get(field) not in values:
            raise RefusedField(f"'{field}' {_expected(values)}", field)


def _expected(values: Iterable[Any]) -> str:
    """Return the second half of an error text: the accepted values, without empty ones."""
    names = [
        value if type(value) is str else json.dumps(value)
        for value in values
        if value is not None and value not in ("", [], {})
    ]
    if not names:
        return "is not supported"
    *others, last = names
    return f"must be {', '.join(others)} or {last}" if others else f"must be {last}"


def model_name(fields: dict[str, Any]) -> str:
    """Return the model that a request names. Raises RefusedField."""
    name = fields.get("model")
    if type(name) is not str or not name:
        raise RefusedField("'model' must be the name of a model", "model")
    return name


def texts(
    fields: dict[str, Any], field: str, limit: int, *, may_be_empty: bool = False
) -> list[str]:
    """Return the texts of a field that has one text or a list. Raises RefusedField."""
    value = fields.get(field)
    strings = [value] if type(value) is str else value
    if type(strings) is list and len(strings) > limit:
        raise RefusedField(f"'{field}' must not have more than {limit} elements", field)
    if type(strings) is not list or not strings or any(type(text) is not str for text in strings):
        raise RefusedField(
            f"'{field}' must be a string or a list of strings; numbers of tokens are not supported",
            field,
        )
    if not may_be_empty and "" in strings:
        raise RefusedField(f"'{field}' must not be empty", field)
    return strings


def sampling(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the sampling parameters of a request, by models' names. Raises RefusedField."""
    parameters: dict[str, Any] = {
        field: number(fields, field, values) for field, values in SAMPLING.items()
    }
    for field in FLAGS:
        parameters[field] = flag(fields, field) if fields.get(field) is not None else None
    parameters["stop"] = _stop(fields)
    parameters["logit_bias"] = _logit_bias(fields)
    # the newer name of OpenAI; models know the older one
    newer = parameters.pop("max_completion_tokens")
    parameters["max_tokens"] = parameters["max_tokens"] if newer is None else newer
    return {key: value for key, value in parameters.items() if value is not None}


def number(fields: dict[str, Any], field: str, values: Range) -> Any:
    """Return a number, None without one. Raises RefusedField."""
    value = fields.get(field)
    if value is None:
        return None
    if not values.has(value):
        raise RefusedField(f"'{field}' must be {values.text}", field)
    return value if values.is_integer else float(value)


def flag(fields: dict[str, Any], field: str, *, standard: bool = False) -> bool:
    """Return a boolean. Raises RefusedField."""
    value = fields.get(field)
    if type(value) not in (bool, type(None)):
        raise RefusedField(f"'{field}' must be true or false", field)
    return standard if value is None else bool(value)


def member(fields: dict[str, Any], field: str, name: str = "") -> dict[str, Any] | None:
    """Return an object, None without one; errors call it `name`. Raises RefusedField."""
    value = fields.get(field)
    if type(value) not in (dict, type(None)):
        raise RefusedField(f"'{name or field}' must be an object", name or field)
    return value


def _stop(fields: dict[str, Any]) -> list[str] | None:
    value = fields.get("stop")
    if value is None or value == []:
        return None
    return texts(fields, "stop", _MAX_STOPS)


def _logit_bias(fields: dict[str, Any]) -> dict[str, float] | None:
    biases = member(fields, "logit_bias")
    if not biases:
        return None
    if len(biases) > _MAX_BIASES:
        raise RefusedField(
            f"'logit_bias' must not have more than {_MAX_BIASES} members", "logit_bias"
        )
    for token, bias in biases.items():
        if not (token.isascii() and token.isdigit() and len(token) < 10 and _BIAS.has(bias)):
            raise RefusedField(
                f"'logit_bias' must map numbers of tokens to {_BIAS.text}", "logit_bias"
            )
    return biases
