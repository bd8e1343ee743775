"""Errors in the form that clients of OpenAI's API read."""

from __future__ import annotations

from typing import Any

import orjson

from zmqtriton.sdk.wire import InternalError, InvalidArgument, NotFound, ZmqTritonError

#: The paths whose errors have this form.
PREFIX = "/v1/"
#: Statuses of refused access: 403 of access.py becomes 401, with the type and code of Triton's
#: frontend.
_RESTRICTED, _UNAUTHORIZED = 403, 401


class RefusedField(InvalidArgument):
    """Raised when a field of the request is wrong; names the field."""

    def __init__(self, text: str, field: str, openai_code: str | None = None) -> None:
        super().__init__(text)
        self.field = field
        self.openai_code = openai_code


class ModelNotFound(NotFound):
    """Raised when the request names a model that does not serve."""

    field, openai_code = "model", "model_not_found"

    def __init__(self, model: str) -> None:
        super().__init__(f"The model '{model}' does not exist or is not loaded.")


class UnfitAnswer(InternalError):
    """Raised when a text does not have the form that the client requested."""

    def __init__(self, model: str, fault: str, field: str) -> None:
        super().__init__(f"the answer of model '{model}' is not of '{field}': {fault}")
        self.field = field


def answer_to(error: ZmqTritonError) -> tuple[int, bytes]:
    """Return the status and the body of an error."""
    return error.http_status, _document(describe(error))


def describe(error: ZmqTritonError) -> dict[str, Any]:
    """Return the document of an error for a client."""
    field, code = getattr(error, "field", None), getattr(error, "openai_code", None)
    return _description(error.http_status, error.text, field, code)


def refusal(status: int, text: str) -> tuple[int, bytes]:
    """Return status and body for a request that was refused before a responder got it."""
    if status == _RESTRICTED:
        return _UNAUTHORIZED, _document(_description(_UNAUTHORIZED, text))
    return status, _document(_description(status, text))


class Form:
    """The form of errors below the path `PREFIX`."""

    of_error = staticmethod(answer_to)
    of_refusal = staticmethod(refusal)


def event(error: ZmqTritonError) -> bytes:
    """Return the event that ends a begun stream with an error."""
    return b"data: %b\n\n" % answer_to(error)[1]


def _description(
    status: int, text: str, field: str | None = None, code: str | None = None
) -> dict[str, Any]:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    if status == _UNAUTHORIZED:
        kind, code = "authentication_error", code or "invalid_auth"
    return {"message": text, "type": kind, "param": field, "code": code}


def _document(description: dict[str, Any]) -> bytes:
    return orjson.dumps({"error": description})
