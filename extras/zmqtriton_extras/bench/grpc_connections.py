"""Connections over gRPC, each with a channel of its own; imported only for plans with gRPC."""

from __future__ import annotations

import base64
import itertools
import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import grpc

from zmqtriton_extras.bench.connections import LONGEST_TEXT, RequestFailed
from zmqtriton_protos import message

_SERVICE = "/inference.GRPCInferenceService"
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # else all channels of a process share one connection, and one process of the server serves them
    ("grpc.use_local_subchannel_pool", 1),
]
#: Then the first request says why there is no connection.
_OPEN_WITHIN_S = 2.0


class _GrpcConnection(ABC):
    """A channel, open or not, for calls or for streams."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._address = plan["address"]
        self._open_within_s = min(plan["timeout_s"], _OPEN_WITHIN_S)
        #: The requests, one after the other, again and again.
        self._messages = itertools.cycle(
            [base64.b64decode(each) for each in plan.get("requests", [plan["request"]])]
        )
        self._metadata = [_metadatum(name.lower(), each) for name, each in plan["headers"].items()]
        self._channel: Any = None

    def open(self) -> None:
        self._channel = grpc.insecure_channel(self._address, options=_OPTIONS)
        self._begin(self._channel)
        with suppress(grpc.FutureTimeoutError):
            grpc.channel_ready_future(self._channel).result(self._open_within_s)

    @abstractmethod
    def _begin(self, channel: Any) -> None:
        """Prepare calls or streams over a new channel."""

    def interrupt(self) -> None:
        channel = self._channel
        if channel is not None:
            channel.close()  # which cancels its calls

    def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


class GrpcCalls(_GrpcConnection):
    """Sends each request in a call of its own."""

    def _begin(self, channel: Any) -> None:
        self._call = channel.unary_unary(f"{_SERVICE}/ModelInfer")

    def ask(self) -> list[float]:
        if self._channel is None:
            self.open()
        try:
            self._call(next(self._messages), metadata=self._metadata)
        except (grpc.RpcError, ValueError) as error:  # a ValueError: the channel is closed
            raise RequestFailed(_text(error)) from None
        return []


class GrpcStream(_GrpcConnection):
    """One stream for all requests: each is sent when the one before has been answered."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__(plan)
        #: True if a request can have several responses; the last one is marked.
        self._is_decoupled = plan["is_decoupled"]
        self._requests: queue.SimpleQueue[bytes] | None = None
        self._responses: Any = iter(())
        self._decode = message("inference.ModelStreamInferResponse").FromString

    def _begin(self, channel: Any) -> None:
        self._method = channel.stream_stream(f"{_SERVICE}/ModelStreamInfer")

    def close(self) -> None:
        self._end_stream()
        super().close()

    def ask(self) -> list[float]:
        if self._channel is None:
            self.open()
        try:
            if self._requests is None:
                requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
                self._requests = requests
                self._responses = self._method(iter(requests.get, b""), metadata=self._metadata)
            self._requests.put(next(self._messages))
            return self._receive()
        except (grpc.RpcError, ValueError) as error:
            self._end_stream()
            raise RequestFailed(_text(error)) from None

    def _receive(self) -> list[float]:
        arrivals = []
        for data in self._responses:
            now_s = time.perf_counter()
            answer = self._decode(data)
            if answer.error_message:
                self._end_stream()  # what may follow belongs to no later request
                raise RequestFailed(answer.error_message[:LONGEST_TEXT])
            if not self._is_decoupled:
                return []
            response = answer.infer_response
            is_final = response.parameters["triton_final_response"].bool_param
            if response.outputs or not is_final:
                arrivals.append(now_s)
            if is_final:
                return arrivals
        self._end_stream()
        raise RequestFailed("the server has closed the stream; see its log")

    def _end_stream(self) -> None:
        requests, self._requests = self._requests, None
        if requests is not None:
            self._responses.cancel()
            requests.put(b"")  # ends gRPC's thread that takes them


def _metadatum(name: str, value: str) -> tuple[str, str | bytes]:
    return name, value.encode() if name.endswith("-bin") else value


def _text(error: Any) -> str:
    details = error.details() if hasattr(error, "details") else str(error)
    return str(details)[:LONGEST_TEXT]
