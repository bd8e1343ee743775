"""All model clients, in the module where scripts look for them."""

from __future__ import annotations

from zmqtriton.pytriton.client.asyncio_clients import (
    AsyncioDecoupledModelClient,
    AsyncioModelClient,
)
from zmqtriton.pytriton.client.base import DEFAULT_INFERENCE_TIMEOUT_S, BaseModelClient
from zmqtriton.pytriton.client.futures_client import FuturesModelClient
from zmqtriton.pytriton.client.sync_clients import DecoupledModelClient, ModelClient

__all__ = [
    "DEFAULT_INFERENCE_TIMEOUT_S",
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "BaseModelClient",
    "DecoupledModelClient",
    "FuturesModelClient",
    "ModelClient",
]
