"""Waiting for servers and models; used by the clients, and by scripts before they have a client."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from zmqtriton_extras.pytriton.client.exceptions import PyTritonClientTimeoutError
from zmqtriton_extras.pytriton.client.wire.calls import Headers, ServerError, TritonUrl
from zmqtriton_extras.pytriton.client.wire.server_clients import ServerClient
from zmqtriton_extras.pytriton.constants import DEFAULT_GRPC_PORT, DEFAULT_HTTP_PORT
from zmqtriton_extras.pytriton.model_config.parser import ModelConfigParser
from zmqtriton_extras.pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = [
    "DEFAULT_GRPC_PORT",
    "DEFAULT_HTTP_PORT",
    "LATEST_MODEL_VERSION",
    "ModelState",
    "TritonUrl",
    "create_client_from_url",
    "get_model_config",
    "get_model_state",
    "wait_for_model_ready",
    "wait_for_server_ready",
]

DEFAULT_NETWORK_TIMEOUT_S = 60.0
_DEFAULT_WAIT_FOR_SERVER_READY_TIMEOUT_S = 60.0
DEFAULT_WAIT_FOR_MODEL_TIMEOUT_S = 300.0
LATEST_MODEL_VERSION = "<latest>"

#: A question is given this long even if less is left: 0 s asks whether it is so now.
_MIN_QUESTION_S = 1.0
#: Seconds between two questions: short at first, then long enough for hundreds of clients.
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
#: Errors that mean that a server is not ready.
NOT_READY = (OSError, ServerError)


class ModelState(enum.Enum):
    """States of a model version, as the repository index has them."""

    LOADING = "LOADING"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"
    READY = "READY"


def create_client_from_url(url: str, network_timeout_s: float | None = None) -> ServerClient:
    """Return a client of a server, for the functions below; a call may take 60 s by default.

    Raises PyTritonClientInvalidUrlError.
    """
    timeout_s = DEFAULT_NETWORK_TIMEOUT_S if network_timeout_s is None else network_timeout_s
    return ServerClient(TritonUrl.from_url(url), timeout_s)


def questions(timeout_s: float, longest_s: float) -> Iterator[tuple[float, float]]:
    """Yield the time for a question and for the pause after it, until the time is over."""
    deadline_s = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while True:
        left_s = deadline_s - time.monotonic()
        yield min(longest_s, max(left_s, _MIN_QUESTION_S)), max(0.0, min(pause_s, left_s))
        if time.monotonic() >= deadline_s:
            return
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _wait(
    is_so: Callable[[float], bool], timeout_s: float, longest_s: float, complaint: str
) -> None:
    for question_s, pause_s in questions(timeout_s, longest_s):
        try:
            if is_so(question_s):
                return
        except NOT_READY:
            pass  # not yet there, or not any more
        time.sleep(pause_s)
    raise PyTritonClientTimeoutError(complaint)


def wait_for_server_ready(
    client: ServerClient, timeout_s: float | None = None, headers: Headers | None = None
) -> None:
    """Wait for the server, 60 s by default. Raises PyTritonClientTimeoutError."""
    if timeout_s is None:
        timeout_s = _DEFAULT_WAIT_FOR_SERVER_READY_TIMEOUT_S

    def is_ready(question_s: float) -> bool:
        return client.is_server_ready(headers, timeout_s=question_s) and client.is_server_live(
            headers, timeout_s=question_s
        )

    complaint = "Waiting for server to be ready timed out."
    _wait(is_ready, timeout_s, client.timeout_s, complaint)


def wait_for_model_ready(
    client: ServerClient,
    model_name: str,
    model_version: str | None = None,
    timeout_s: float | None = None,
    headers: Headers | None = None,
) -> None:
    """Wait for the server and then the model, 300 s by default.

    Raises PyTritonClientTimeoutError.
    """
    timeout_s = DEFAULT_WAIT_FOR_MODEL_TIMEOUT_S if timeout_s is None else timeout_s
    deadline_s = time.monotonic() + timeout_s
    wait_for_server_ready(client, timeout_s, headers)

    def is_ready(question_s: float) -> bool:
        version = model_version or ""
        return client.is_model_ready(model_name, version, headers, timeout_s=question_s)

    model = f"{model_name}/{model_version or LATEST_MODEL_VERSION}"
    complaint = f"Waiting for model {model} to be ready timed out."
    _wait(is_ready, max(0.0, deadline_s - time.monotonic()), client.timeout_s, complaint)


def get_model_config(
    client: ServerClient,
    model_name: str,
    model_version: str | None = None,
    timeout_s: float | None = None,
    headers: Headers | None = None,
) -> TritonModelConfig:
    """Wait for the model and return its configuration. Raises PyTritonClientTimeoutError."""
    wait_for_model_ready(client, model_name, model_version, timeout_s, headers)
    document = client.get_model_config(model_name, model_version or "", headers)
    return ModelConfigParser.from_dict(document)


def get_model_state(
    client: ServerClient,
    model_name: str,
    model_version: str | None = None,
    headers: Headers | None = None,
) -> ModelState:
    """Return the state of a version, or of the latest one."""
    return find_state(client.get_model_repository_index(headers), model_name, model_version)


def find_state(
    index: Sequence[dict[str, Any]], model_name: str, model_version: str | None
) -> ModelState:
    """Return the state in a repository index, UNAVAILABLE if the index lacks the model."""
    states = {
        entry["version"]: ModelState(entry["state"]) if entry.get("state") else ModelState.LOADING
        for entry in index
        if entry["name"] == model_name and entry.get("version")
    }
    version = model_version or max(states, key=int, default="")
    return states.get(version, ModelState.UNAVAILABLE)
