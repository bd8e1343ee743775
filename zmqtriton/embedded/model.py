"""A model of a server, which this process calls through a channel."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Protocol

from zmqtriton.embedded.requests import InferenceRequest, InferenceResponse, merged


class ModelChannel(Protocol):
    """The way to the models of one server. The version "" is the newest loaded one."""

    def infer(
        self, model: str, version: str, request: InferenceRequest
    ) -> Iterator[InferenceResponse]:
        """Send a request, and iterate over the responses."""

    def async_infer(
        self, model: str, version: str, request: InferenceRequest
    ) -> AsyncIterator[InferenceResponse]:
        """Send a request, and iterate over the responses in a coroutine."""

    def is_ready(self, model: str, version: str) -> bool:
        """True if the model could execute a request now."""

    def metadata(self, model: str, version: str) -> dict[str, Any]:
        """Return the model's metadata in the protocol's form."""

    def config(self, model: str, version: str) -> dict[str, Any]:
        """Return the model's configuration as the protocol has it."""

    def statistics(self, model: str, version: str) -> dict[str, Any]:
        """Return the model's counters in the protocol's form."""


class Model:
    """A model of a server, by name and version; "" means the newest that is loaded."""

    def __init__(self, channel: ModelChannel, name: str, version: str = "") -> None:
        self._channel = channel
        self.name = name
        self.version = version

    def __repr__(self) -> str:
        return f"Model({self.name!r}{f', {self.version!r}' if self.version else ''})"

    # ---------------------------------------------------------------- asking

    def create_request(self, inputs: Mapping[str, Any], **options: Any) -> InferenceRequest:
        """Return a request; the options are the fields of InferenceRequest."""
        return InferenceRequest(inputs, **options)

    def infer(
        self,
        request: InferenceRequest | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Iterator[InferenceResponse]:
        """Iterate over the responses: one, or those that a decoupled model sends.

        The request is sent when this returns, so its inputs may change; over a socket, large inputs
        must not change before the first response. Closing the iterator, or dropping it, cancels the
        request. Raises the server's error where there is no response, and TimeoutError when the
        request's deadline has passed.
        """
        return self._channel.infer(self.name, self.version, merged(request, inputs, options))

    def async_infer(
        self,
        request: InferenceRequest | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncIterator[InferenceResponse]:
        """Iterate over the responses as `infer` does, in a coroutine of any event loop.

        Over a socket, the loop must be one of the connection's thread.
        """
        return self._channel.async_infer(self.name, self.version, merged(request, inputs, options))

    # ------------------------------------------------------------- the model

    def is_ready(self) -> bool:
        """True if the model could execute a request now."""
        return self._channel.is_ready(self.name, self.version)

    def metadata(self) -> dict[str, Any]:
        return self._channel.metadata(self.name, self.version)

    def config(self) -> dict[str, Any]:
        return self._channel.config(self.name, self.version)

    @property
    def batch_ready(self) -> bool:
        """True if the first dimension of the model's tensors is the batch."""
        return int(self.config().get("max_batch_size", 0)) > 0

    def statistics(self) -> dict[str, Any]:
        return self._channel.statistics(self.name, self.version)
