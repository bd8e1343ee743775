"""The announcements of a cluster's servers, in the key-value store of Ray's head.

They are there for those who look for servers. No request needs them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import ray
from ray.experimental import internal_kv

_NAMESPACE = b"zmqtriton"
#: The names of replicas begin so, which are those of their actors.
_ACTOR = "SERVE_REPLICA::"


def write(replica: str, announcement: Mapping[str, Any]) -> None:
    text = json.dumps(announcement).encode()
    internal_kv._internal_kv_put(replica.encode(), text, overwrite=True, namespace=_NAMESPACE)


def remove(replica: str) -> None:
    internal_kv._internal_kv_del(replica.encode(), namespace=_NAMESPACE)


def read() -> list[dict[str, Any]]:
    """Return what the servers of living replicas have announced last."""
    announcements = []
    for actor in ray.util.list_named_actors(all_namespaces=True):
        name = actor["name"]
        if not name.startswith(_ACTOR):
            continue
        text = internal_kv._internal_kv_get(name.encode(), namespace=_NAMESPACE)
        if text is not None:
            announcements.append(json.loads(text))
    return announcements
