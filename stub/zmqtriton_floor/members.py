"""What a request to a model leads to: the model, and where it is an ensemble, its members.

Asked by whoever knows the configurations of all: frontends, broker and supervisor. Knows nothing
but configurations.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, Mapping, Optional

#: The configuration that a request by this name and version (-1: the newest) goes to; None: to
#: none.
Find = Callable[[str, int], Optional[Mapping[str, Any]]]


def inside(
    find: Find, model: str, version: int, around: frozenset[str] = frozenset()
) -> Iterator[Mapping[str, Any]]:
    """The configurations of the model and of all that it leads to, as far as they are there."""
    config = find(model, version) if model not in around else None
    if config is None:
        return
    yield config
    for step in config.get("ensemble_scheduling", {}).get("step", []):
        name, wanted = step["model_name"], int(step.get("model_version", -1))
        yield from inside(find, name, wanted, around | {model})
