"""The models that a request leads to: the model itself and, for an ensemble, its members.

Used wherever all configurations are known: in frontends, broker and supervisor.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, Mapping, Optional

#: Returns the configuration for a name and version (-1: the newest), or None.
Find = Callable[[str, int], Optional[Mapping[str, Any]]]


def inside(
    find: Find, model: str, version: int, around: frozenset[str] = frozenset()
) -> Iterator[Mapping[str, Any]]:
    """Return the known configurations of the model and of all that it leads to."""
    config = find(model, version) if model not in around else None
    if config is None:
        return
    yield config
    for step in config.get("ensemble_scheduling", {}).get("step", []):
        name, wanted = step["model_name"], int(step.get("model_version", -1))
        yield from inside(find, name, wanted, around | {model})
