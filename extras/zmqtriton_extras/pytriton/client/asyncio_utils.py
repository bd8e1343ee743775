"""Waiting for servers and models in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from zmqtriton_extras.pytriton.client.exceptions import PyTritonClientTimeoutError
from zmqtriton_extras.pytriton.client.utils import NOT_READY, ModelState, find_state, questions
from zmqtriton_extras.pytriton.client.wire.server_clients import AsyncServerClient
from zmqtriton_extras.pytriton.model_config.parser import ModelConfigParser
from zmqtriton_extras.pytriton.model_config.triton_model_config import TritonModelConfig

_DEFAULT_WAIT_FOR_MODEL_TIMEOUT_S = 60.0


async def asyncio_wait_for_model_ready(
    asyncio_client: AsyncServerClient,
    model_name: str,
    model_version: str | None = None,
    timeout_s: float = _DEFAULT_WAIT_FOR_MODEL_TIMEOUT_S,
) -> None:
    """Wait for the server and its model. Raises PyTritonClientTimeoutError."""

    async def is_ready(question_s: float) -> bool:
        return await asyncio_client.is_server_ready(timeout_s=question_s) and (
            await asyncio_client.is_model_ready(
                model_name, model_version or "", timeout_s=question_s
            )
        )

    if not await _becomes_true(is_ready, timeout_s, asyncio_client.timeout_s):
        raise PyTritonClientTimeoutError(
            f"Timeout while waiting for model {model_name} to be ready (timeout={timeout_s:0.2f})"
        )


async def _becomes_true(
    is_so: Callable[[float], Awaitable[bool]], timeout_s: float, longest_s: float
) -> bool:
    for question_s, pause_s in questions(timeout_s, longest_s):
        try:
            if await is_so(question_s):
                return True
        except NOT_READY:
            pass  # not yet there, or not any more
        await asyncio.sleep(pause_s)
    return False


async def asyncio_get_model_config(
    client: AsyncServerClient,
    model_name: str,
    model_version: str | None = None,
    timeout_s: float = _DEFAULT_WAIT_FOR_MODEL_TIMEOUT_S,
) -> TritonModelConfig:
    """Wait for the model and return its configuration. Raises PyTritonClientTimeoutError."""
    await asyncio_wait_for_model_ready(client, model_name, model_version, timeout_s)
    document = await client.get_model_config(model_name, model_version or "")
    return ModelConfigParser.from_dict(document)


async def asyncio_get_model_state(
    client: AsyncServerClient, model_name: str, model_version: str | None = None
) -> ModelState:
    """Return the state of a version, or of the latest one."""
    return find_state(await client.get_model_repository_index(), model_name, model_version)
