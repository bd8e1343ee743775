"""The step that makes a line of the access log of each request."""

from __future__ import annotations

import re
from typing import Any

from zmqtriton.sdk.frontend import Ask, CheckedRequest, Gateway, Stages, refusals
from zmqtriton.sdk.lines.line import Line
from zmqtriton.sdk.lines.values import size_of
from zmqtriton.sdk.wire import ZmqTritonError, clipped, wire
from zmqtriton_standard.access_log.refusals import add_source, log_refusals, send

#: Parts of errors that have what a client sent.
_CLIENTS = re.compile(r"'.*'|(?<=for input )[^'].*|(?<=got: ).*", re.DOTALL)
_LEFT_OUT = "'…'"


def _without_names(error: Exception) -> str:
    """Return the text of an error, without names that the client sent if the error is its own."""
    text = clipped(str(error))
    is_clients = getattr(error, "http_status", ZmqTritonError.http_status) < 500
    return _CLIENTS.sub(_LEFT_OUT, text) if is_clients else text


class AccessLog:
    def __init__(self, line: Line) -> None:
        self._line = line

    def __call__(self, ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        stages = checked.stages
        if stages is None:
            stages = Stages(ask.begun_ns)
            checked = checked.with_stages(stages)
        document = _document(ask, checked.model.version)
        document["request_id"] = checked.body.request_id
        document["request_bytes"] = sum(len(tensor.data) for tensor in checked.body.inputs)
        return checked.with_observer(_Entry(self._line, ask.begun_ns, stages, document))

    def refused(self, ask: Ask, error: ZmqTritonError) -> None:
        """Write the line of a request that the entrance refuses."""
        if isinstance(error, refusals.AccessRefused):
            error.is_reported = True
        document = _document(ask, ask.target[1])
        document.update(status=error.code, error=_without_names(error))
        send(self._line, document, ask.begun_ns)


class _Entry:
    """An observer of one request, which sends its line at the end."""

    context = ""

    def __init__(self, line: Line, begun_ns: int, stages: Stages, document: dict[str, Any]) -> None:
        self._line = line
        self._begun_ns = begun_ns
        self._stages = stages
        self._document = document
        self._responses = self._bytes = 0
        self._error: Exception | None = None
        self._has_ended = False

    def take(self, response: wire.ResponseBody) -> None:
        self._responses += 1
        self._bytes += size_of(response.outputs)

    def fail(self, error: Exception) -> None:
        self._error = error

    def end(self, sending: str) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        document, error = self._document, self._error
        document["responses"] = self._responses
        document["response_bytes"] = self._bytes
        for name, ns in self._stages.durations().items():
            document[f"{name}_ms"] = ns / 1e6
        document["status"] = "OK"
        if error is not None:
            document["status"] = getattr(error, "code", ZmqTritonError.code)
            document["error"] = _without_names(error)
        send(self._line, document, self._begun_ns)


def access_log(gateway: Gateway) -> AccessLog:
    """Make the step of a process."""
    return AccessLog(log_refusals(gateway))


def _document(ask: Ask, version: int | str) -> dict[str, Any]:
    document: dict[str, Any] = {"model": ask.target[0], "version": str(version)}
    if ask.grant is not None:
        document["token"] = ask.grant.name
    if ask.source is not None:
        add_source(document, ask.source())
    return document
