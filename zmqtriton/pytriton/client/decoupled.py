"""The settings that clients of decoupled models share: the meaning of their timeout."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from zmqtriton.pytriton.client.base import BaseModelClient
from zmqtriton.pytriton.client.exceptions import PyTritonClientValueError
from zmqtriton.pytriton.client.wire.stream_timeouts import (
    TIMEOUT_SCOPES,
    StreamTimeout,
    TimeoutScope,
)

Client = TypeVar("Client", bound="BaseDecoupledClient")


class BaseDecoupledClient(BaseModelClient):
    """The settings of a client of one decoupled model."""

    #: As in PyTriton.
    _default_scope: ClassVar[TimeoutScope]

    def __init__(
        self,
        url: str,
        model_name: str,
        model_version: str | None = None,
        *,
        timeout_scope: TimeoutScope | None = None,
        **settings: Any,
    ) -> None:
        """Set up; the settings are those of ModelClient.

        timeout_scope says what inference_timeout_s counts for: "none" is nothing, "response" the
        wait for each response, "stream" all responses together.
        """
        scope = self._default_scope if timeout_scope is None else timeout_scope
        if scope not in TIMEOUT_SCOPES:
            raise PyTritonClientValueError(
                f"timeout_scope must be one of {', '.join(TIMEOUT_SCOPES)}, got {scope!r}"
            )
        self._timeout_scope: TimeoutScope = scope
        super().__init__(url, model_name, model_version, **settings)

    @classmethod
    def from_existing_client(cls: type[Client], existing_client: BaseModelClient) -> Client:
        client = super().from_existing_client(existing_client)
        if isinstance(existing_client, BaseDecoupledClient):
            client._timeout_scope = existing_client._timeout_scope
        return client

    def _stream_timeout(self) -> StreamTimeout:
        return StreamTimeout(self._inference_timeout_s, self._timeout_scope)
