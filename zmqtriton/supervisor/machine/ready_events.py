"""What belongs to descriptors that are ready in the same moment; called by the service."""

from __future__ import annotations

import selectors


def call_ready(
    selector: selectors.BaseSelector, ready: list[tuple[selectors.SelectorKey, int]]
) -> None:
    """Calls what belongs to each, but for those that an earlier one of them has unregistered: who
    is dead may have written too, and somebody else may have its descriptor's number by now.
    """
    for key, _ in ready:
        if selector.get_map().get(key.fd) is key:
            key.data()
