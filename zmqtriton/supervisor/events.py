"""Waits for descriptors and calls what belongs to those that are ready; the service's one wait."""

from __future__ import annotations

import selectors


def wait(selector: selectors.BaseSelector, timeout_s: float | None) -> list[selectors.SelectorKey]:
    """What is ready, for call()."""
    return [key for key, _ in selector.select(timeout_s)]


def call(selector: selectors.BaseSelector, ready: list[selectors.SelectorKey]) -> None:
    """What belongs to each, but for those that an earlier one of them has unregistered: a process
    that is dead may have written too, and somebody else may have its descriptor's number by now.
    """
    for key in ready:
        if selector.get_map().get(key.fd) is key:
            key.data()
