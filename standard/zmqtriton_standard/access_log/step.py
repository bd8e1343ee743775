"""The step that makes a line of the access log of each request."""

from __future__ import annotations

import asyncio
import atexit
import time
from collections.abc import Callable
from typing import Any

import orjson

from zmqtriton.sdk.lines.line import Line
from zmqtriton.sdk.lines.values import size_of, timestamp
from zmqtriton_floor.endpoints import local_service_path
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.access.bearer_tokens import MAX_ADDRESSES, FailureLimit
from zmqtriton_frontends.access.refusals import AccessRefused, Refusal, Source, listeners
from zmqtriton_frontends.entrance import Ask
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.inference import CheckedRequest, Stages, now_ns
from zmqtriton_standard.access_log.options import SERVICE

#: A client's path may have any length.
_MAX_ROUTE = 1000
#: The time between two lines with the number of a client's refusals that have no line.
_LEFT_OUT_EVERY_S = 10.0


class RefusalLimit:
    """The limit of lines about refusals: some of each client, and the number of all others.

    A client without a token may send any number of requests, and must not fill the disk.
    """

    def __init__(self) -> None:
        self._recent = FailureLimit()
        #: Refusals without a line, by address.
        self._left_out: dict[str, int] = {}

    def admits(self, address: str, now_s: float) -> bool:
        """Return whether a refusal of this client gets a line; count it if not."""
        if not self._recent.add(address, now_s).wait_s:
            return True
        if address not in self._left_out and len(self._left_out) >= MAX_ADDRESSES:
            address = "others"
        self._left_out[address] = self._left_out.get(address, 0) + 1
        return False

    def take_left_out(self) -> list[tuple[str, int]]:
        """Return the clients of refusals without a line, with their numbers, and begin again."""
        taken, self._left_out = self._left_out, {}
        return list(taken.items())


class AccessLog:
    def __init__(self, line: Line, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = line
        self._clock = clock
        self._limit = RefusalLimit()
        #: Writes the numbers of refusals without a line; None while there are none.
        self._timer: asyncio.TimerHandle | None = None

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
        """Write the line of a request that does not enter."""
        if isinstance(error, AccessRefused):
            error.is_reported = True
        document = _document(ask, ask.target[1])
        document.update(status=error.code, error=error.text)
        _send(self._line, document, ask.begun_ns)

    def turned_away(self, refusal: Refusal) -> None:
        """Write the line of a request without access, unless its client has had many."""
        source = refusal.source
        if not self._limit.admits(source.address, self._clock()):
            if self._timer is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(_LEFT_OUT_EVERY_S, self.write_left_out)
                atexit.register(self.write_left_out)
            return
        document: dict[str, Any] = {"model": refusal.model} if refusal.model else {}
        if refusal.token:
            document["token"] = refusal.token
        _add_source(document, source)
        document.update(status=refusal.code, error=refusal.text)
        _send(self._line, document, 0)

    def write_left_out(self) -> None:
        """Write the number of refusals without a line of each client."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            atexit.unregister(self.write_left_out)
        for client, count in self._limit.take_left_out():
            _send(self._line, {"client": client, "left_out": count}, 0)


class _Entry:
    """An observer, which sends one line at the end."""

    context = ""

    def __init__(self, line: Line, begun_ns: int, stages: Stages, document: dict[str, Any]) -> None:
        self._line = line
        self._begun_ns = begun_ns
        self._stages = stages
        self._document = document
        self._responses = self._bytes = 0
        self._error: Exception | None = None
        self._has_ended = False

    def take(self, response: ResponseBody) -> None:
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
            document["error"] = str(error)
        _send(self._line, document, self._begun_ns)


def access_log(gateway: Gateway) -> AccessLog:
    """Make the step of a process."""
    path = local_service_path(gateway.settings.server.runtime_directory, SERVICE)
    log = AccessLog(Line(path))
    listeners.append(log.turned_away)
    return log


def _document(ask: Ask, version: int | str) -> dict[str, Any]:
    document: dict[str, Any] = {"model": ask.target[0], "version": str(version)}
    if ask.grant is not None:
        document["token"] = ask.grant.name
    if ask.source is not None:
        _add_source(document, ask.source())
    return document


def _add_source(document: dict[str, Any], source: Source) -> None:
    if source.address:
        document["client"] = source.address
    document["protocol"] = source.protocol
    document["route"] = source.route[:_MAX_ROUTE]


def _send(line: Line, document: dict[str, Any], begun_ns: int) -> None:
    waited_ns = now_ns() - begun_ns if begun_ns else 0
    document = {
        "time": timestamp(time.time() - waited_ns / 1e9),
        **document,
        "duration_ms": waited_ns / 1e6,
    }
    if not line.has_room(0):
        line.dropped += 1
        return
    if line.dropped:
        document["dropped"], line.dropped = line.dropped, 0
    line.send(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
