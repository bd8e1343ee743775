"""The choice of nodes for a model. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def choose_nodes(
    count: int, having: Collection[str], others: Mapping[str, int], avoided: Collection[str] = ()
) -> set[str]:
    """Return so many of the nodes, as far as there are.

    Those that have the model stay, so that nothing moves without need; the next ones are those with
    the fewest `others`, which are the placed models of each node. Where it has failed lately it is
    put only if there is no other node.
    """

    def price(node: str) -> tuple[bool, bool, int, str]:
        return node not in having, node in avoided, others[node], node

    # of those that have it, the fullest goes first
    return set(sorted(others, key=price)[:count])
