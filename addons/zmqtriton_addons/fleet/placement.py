"""The choice of nodes for a model, and of a model for a node that has few. Pure."""

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


def uneven_nodes(placed: Mapping[str, Collection[str]]) -> tuple[str, str] | None:
    """Return the nodes with the most models and with the fewest, if one less there is more even."""
    if not placed:
        return None
    ordered = sorted(placed, key=lambda node: (len(placed[node]), node))
    emptiest, fullest = ordered[0], ordered[-1]
    return (fullest, emptiest) if len(placed[fullest]) - len(placed[emptiest]) > 1 else None
