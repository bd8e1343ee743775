"""The servers that a proxy knows. Does no I/O, and knows no clock.

Announcements and lists name new servers. A server that they no longer name, or call gone, is probed
before it is forgotten: perhaps only its announcer, its network path or the list has failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from zmqtriton_extras.fleet.servers.nodes import STARTING, Node

#: Times in a row that a server must not answer before it is forgotten.
MISSES = 3


class _Member(NamedTuple):
    node: Node
    misses: int = 0


class Membership:
    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        """Set up; `nodes` were known to an earlier run, so they are probed first."""
        self._members = {node.http: _Member(node) for node in nodes}
        self._doubted = set(self._members)

    @property
    def nodes(self) -> list[Node]:
        """The known servers, each with the models that it may get requests for."""
        return [self._members[http].node for http in sorted(self._members)]

    @property
    def doubted(self) -> list[Node]:
        """The servers to probe: it is doubtful whether they still answer."""
        return [self._members[http].node for http in sorted(self._doubted)]

    def hear(self, nodes: Iterable[Node]) -> None:
        """Update the members from all current descriptions; doubt members without one."""
        self._doubted = set(self._members)
        for node in nodes:
            member = self._members.get(node.http)
            if node.is_gone or (member is not None and node.order < member.node.order):
                continue
            if member is None and node.state == STARTING:
                continue  # a proxy takes an unknown server for ready until it has asked
            self._members[node.http] = _Member(_listed(node, member.node if member else None))
            self._doubted.discard(node.http)

    def judge(self, http: str, *, answers: bool) -> None:
        """Keep a doubted server that answers; remove it after MISSES probes without an answer."""
        member = self._members[http]
        misses = 0 if answers else member.misses + 1
        if misses >= MISSES:
            del self._members[http]
            self._doubted.discard(http)
        else:
            self._members[http] = member._replace(misses=misses)


def _listed(node: Node, before: Node | None) -> Node:
    """Return a server with the models that are ready there, or were ready in the same run.

    The proxy's probes judge a model that was ready: it may be drained, and still have sequences.
    """
    if node.ready is None or node.models is None:
        return node
    is_same_run = before is not None and before.order[0] == node.order[0]
    earlier = set(before.models or ()) if before is not None and is_same_run else set()
    return node._replace(models=tuple(m for m in node.models if m in earlier or m in node.ready))
