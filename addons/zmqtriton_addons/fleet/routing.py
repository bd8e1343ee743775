"""The servers that requests for a model are sent to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zmqtriton_addons.fleet.servers.nodes import Node


class Routing:
    """Lists a model at a server once it is ready there, and for as long as it should be.

    A proxy takes a server that it has not heard of for ready until it has asked, so one that still
    loads would be sent requests. One that was ready is the proxy's to judge: it may be drained, and
    still have sequences.
    """

    def __init__(self) -> None:
        #: By the runs of servers.
        self._listed: dict[tuple[str, float], frozenset[str]] = {}

    def route(self, nodes: Mapping[str, tuple[Node, Mapping[str, Any]]]) -> list[Node]:
        """Return the servers with the models that they are to be asked for."""
        listed = {}
        routed = []
        for node, announcement in nodes.values():
            run = node.http, node.order[0]
            ready = {m["name"] for m in announcement.get("models", ()) if m.get("ready")}
            before = self._listed.get(run, frozenset())
            listed[run] = (before | ready).intersection(node.models or ())
            routed.append(node._replace(models=tuple(sorted(listed[run]))))
        self._listed = listed
        return routed
