"""The announcements of a cluster's servers, in the key-value store of Ray's head.

Programs that look for servers read them. No request needs them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import ray
from ray import serve
from ray.experimental import internal_kv

from zmqtriton.sdk.wire import InvalidArgument

_NAMESPACE = b"zmqtriton"
#: The names of replicas begin so, which are those of their actors.
_ACTOR = "SERVE_REPLICA::"
#: Replicas in these states are servers that are there, or should be.
_MEANT = ("STARTING", "UPDATING", "RECOVERING", "RUNNING")


def write(replica: str, announcement: Mapping[str, Any]) -> None:
    _put(replica, json.dumps(announcement).encode())
    # by its deployment the servers are counted that there should be, also when none is there
    _put(replica.rpartition("#")[0], b"{}")


def remove(replica: str) -> None:
    internal_kv._internal_kv_del(replica.encode(), namespace=_NAMESPACE)


def find(address: str) -> tuple[list[dict[str, Any]], int]:
    """Return the last announcements of servers, and the number of servers that Serve wants.

    The cluster is the one at the address, by default $RAY_ADDRESS or this machine's. Raises
    InvalidArgument.
    """
    try:
        ray.init(address=address or "auto", logging_level="error", log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InvalidArgument(
            f"there is no Ray cluster, start one with `ray start --head`: {error}"
        ) from None
    try:
        return list(_announcements()), _count_replicas()
    finally:
        ray.shutdown()


def _announcements() -> Iterator[dict[str, Any]]:
    """Yield the announcements of living replicas."""
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["name"].startswith(_ACTOR) and (text := _get(actor["name"])):
            yield json.loads(text)


def _count_replicas() -> int:
    """Return the number of replicas that have servers, or will have them."""
    return sum(
        count
        for app, application in serve.status().applications.items()
        for name, deployment in application.deployments.items()
        for state, count in deployment.replica_states.items()
        if state in _MEANT and _get(f"{_ACTOR}{app}#{name}")
    )


def _put(key: str, text: bytes) -> None:
    internal_kv._internal_kv_put(key.encode(), text, overwrite=True, namespace=_NAMESPACE)


def _get(key: str) -> bytes | None:
    text: bytes | None = internal_kv._internal_kv_get(key.encode(), namespace=_NAMESPACE)
    return text
