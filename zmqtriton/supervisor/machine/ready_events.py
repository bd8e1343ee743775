"""Calls the handlers of descriptors that are ready at the same moment."""

from __future__ import annotations

import selectors


def call_ready(
    selector: selectors.BaseSelector, ready: list[tuple[selectors.SelectorKey, int]]
) -> None:
    """Call each handler, except those that an earlier one has unregistered.

    A process that died may have written, too, and its descriptor's number may be another's by now.
    """
    for key, _ in ready:
        if selector.get_map().get(key.fd) is key:
            key.data()
