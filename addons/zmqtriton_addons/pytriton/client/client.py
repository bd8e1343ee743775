"""All model clients, in the module where scripts look for them."""

from __future__ import annotations

from zmqtriton_addons.pytriton.client.asyncio_clients import (
    AsyncioDecoupledModelClient,
    AsyncioModelClient,
)
from zmqtriton_addons.pytriton.client.base import DEFAULT_INFERENCE_TIMEOUT_S, BaseModelClient
from zmqtriton_addons.pytriton.client.futures_client import FuturesModelClient
from zmqtriton_addons.pytriton.client.sync_clients import DecoupledModelClient, ModelClient

__all__ = [
    "DEFAULT_INFERENCE_TIMEOUT_S",
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "BaseModelClient",
    "DecoupledModelClient",
    "FuturesModelClient",
    "ModelClient",
]
