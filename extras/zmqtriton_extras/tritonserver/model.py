"""A model of the server, which can be called and described, and the running server."""

from __future__ import annotations

import asyncio
import math
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

from zmqtriton.sdk.process import Model as AskedModel
from zmqtriton.sdk.process import Server
from zmqtriton.sdk.wire import Unavailable
from zmqtriton_extras.tritonserver.enums import (
    InternalError,
    InvalidArgumentError,
    ModelBatchFlag,
    ModelTxnPropertyFlag,
    translation,
)
from zmqtriton_extras.tritonserver.log_records import LogCallback, begin_delivery
from zmqtriton_extras.tritonserver.responses import (
    AsyncResponseIterator,
    InferenceRequest,
    ResponseIterator,
    question,
)

_LOOK_S = 0.01
#: Seconds for the server's processes to end after the exit timeout for requests.
_END_S = 60.0
#: The callback may be slow.
_LOG_END_S = 5.0


class RunningServer:
    """Owns a server, and ends it if a program drops it without a stop."""

    def __init__(self, log_callback: LogCallback | None = None, **options: Any) -> None:
        """Start a server, and wait until it has tried to load all models of its start.

        Raises InternalError if the server ends instead.
        """
        self.connection = Server(**options)
        within_s = options["exit_timeout_secs"] + _END_S
        stop: Callable[[], object] = partial(self.connection.stop, within_s)
        try:
            with ExitStack() as until_started:
                stderr = None
                if log_callback is not None:
                    ours, stderr = os.pipe()
                    until_started.callback(os.close, stderr)
                    stop = partial(_stop, stop, begin_delivery(ours, log_callback))
                self.connection.start(wait_until_ready=False, timeout_s=math.inf, stderr=stderr)
            while not self.connection.control("is_open"):
                time.sleep(_LOOK_S)
        except Unavailable as error:
            stop()
            raise InternalError(f"creating server: {error.text}") from error
        except BaseException:
            stop()
            raise
        self._end = weakref.finalize(self, stop)
        # at exit the server notices by itself that this process ends
        self._end.atexit = False

    def stop(self) -> None:
        """Answer open requests, and end the server."""
        self._end()


def _stop(stop: Callable[[], object], delivery: threading.Thread) -> None:
    """End the server, and deliver the last of its log."""
    stop()
    if delivery is not threading.current_thread():
        delivery.join(_LOG_END_S)


class Started(Protocol):
    """A Server, as far as a model needs it."""

    @property
    def running(self) -> RunningServer:
        """The server; raises InvalidArgumentError before the start."""


class Model:
    """A model by name and version; -1 is the newest that is loaded. It need not exist."""

    def __init__(
        self,
        server: Started,
        name: str,
        version: int = -1,
        state: str | None = None,
        reason: str | None = None,
    ) -> None:
        self._server = server.running
        self.name = name
        self.version = version
        self.state = state
        self.reason = reason

    def __repr__(self) -> str:
        return str({"name": self.name, "version": self.version, "state": self.state})

    # ---------------------------------------------------------------- asking

    def create_request(self, **kwargs: Any) -> InferenceRequest:
        """Return a request; the arguments are the fields of InferenceRequest."""
        return InferenceRequest(**{**kwargs, "model": self})

    def infer(
        self,
        inference_request: InferenceRequest | None = None,
        raise_on_error: bool = True,
        **kwargs: Any,
    ) -> ResponseIterator:
        """Call the model, with a request or the fields of one; iterate over its responses.

        Raises InvalidArgumentError for arguments that no model could take; other errors come as
        responses, and are raised there with `raise_on_error`.
        """
        request = inference_request or self.create_request(**kwargs)
        if not isinstance(request.response_queue, queue.SimpleQueue | None):
            raise InvalidArgumentError("queue.SimpleQueue must be used for response iterator")
        asked = self._asked()
        with translation():
            responses = asked.infer(question(request))
        return ResponseIterator(asked, responses, request, raise_on_error)

    def async_infer(
        self,
        inference_request: InferenceRequest | None = None,
        raise_on_error: bool = True,
        **kwargs: Any,
    ) -> AsyncResponseIterator:
        """Call the model as infer() does; the responses are for a coroutine."""
        request = inference_request or self.create_request(**kwargs)
        if not isinstance(request.response_queue, asyncio.Queue | None):
            raise InvalidArgumentError("asyncio.Queue must be used for async response iterator")
        asked = self._asked()
        with translation():
            responses = asked.async_infer(question(request))
        return AsyncResponseIterator(asked, responses, request, raise_on_error)

    # ------------------------------------------------------------- the model

    def ready(self) -> bool:
        """Return whether the model could execute a request now."""
        with translation():
            return self._asked().is_ready()

    def metadata(self) -> dict[str, Any]:
        """Return name, versions, platform, inputs and outputs."""
        with translation():
            return self._asked().metadata()

    def config(self, config_version: int = 1) -> dict[str, Any]:
        """Return the configuration; version 1 is the only one of its form."""
        if config_version != 1:
            raise InvalidArgumentError(
                f"configuration version {config_version} is not supported, supported versions "
                "are: 1"
            )
        with translation():
            return self._asked().config()

    def statistics(self) -> dict[str, Any]:
        """Return counts and durations of requests and executions."""
        with translation():
            return {"model_stats": self._asked().statistics()["model_stats"]}

    def batch_properties(self) -> ModelBatchFlag:
        """Return FIRST_DIM if the first dimension of tensors is the batch."""
        with translation():
            is_batching = self._asked().batch_ready
        return ModelBatchFlag.FIRST_DIM if is_batching else ModelBatchFlag.UNKNOWN

    def transaction_properties(self) -> ModelTxnPropertyFlag:
        """Return DECOUPLED if the model may send any number of responses."""
        policy = self.config().get("model_transaction_policy", {})
        is_decoupled = policy.get("decoupled", False)
        return ModelTxnPropertyFlag.DECOUPLED if is_decoupled else ModelTxnPropertyFlag.ONE_TO_ONE

    def _asked(self) -> AskedModel:
        return self._server.connection.model(self.name, self.version)
