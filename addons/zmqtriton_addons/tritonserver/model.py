"""Model: a model of the server, which is asked, and tells about itself."""

from __future__ import annotations

import asyncio
import queue
from typing import Any, Protocol

from zmqtriton.embedded import Model as AskedModel
from zmqtriton_addons.tritonserver.enums import ModelBatchFlag, ModelTxnPropertyFlag
from zmqtriton_addons.tritonserver.errors import InvalidArgumentError, translation
from zmqtriton_addons.tritonserver.requests import InferenceRequest, question
from zmqtriton_addons.tritonserver.responses import AsyncResponseIterator, ResponseIterator
from zmqtriton_addons.tritonserver.running import RunningServer


class Started(Protocol):
    """A Server, as a model needs it."""

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
        """Ask the model, with a request or the fields of one; iterate over its responses.

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
        """Ask the model likewise; the responses are for a coroutine."""
        request = inference_request or self.create_request(**kwargs)
        if not isinstance(request.response_queue, asyncio.Queue | None):
            raise InvalidArgumentError("asyncio.Queue must be used for async response iterator")
        asked = self._asked()
        with translation():
            responses = asked.async_infer(question(request))
        return AsyncResponseIterator(asked, responses, request, raise_on_error)

    # ------------------------------------------------------------- the model

    def ready(self) -> bool:
        """Return whether it could execute a request now."""
        with translation():
            return self._asked().is_ready()

    def metadata(self) -> dict[str, Any]:
        """Return name, versions, platform, inputs and outputs."""
        with translation():
            return self._asked().metadata()

    def config(self, config_version: int = 1) -> dict[str, Any]:
        """Return the configuration; there is one version of its form."""
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
        """Return FIRST_DIM if the first dimension is that of a batch."""
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
