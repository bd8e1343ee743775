"""Parameters of models for features that are add-ons: their faults, and their values.

Each of these add-ons has a module with `problems` and `read`, which take a configuration, and with
the `TYPES` of values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zmqtriton import addons
from zmqtriton.config.errors import Problem
from zmqtriton.config.parameters import AUTOSCALE_PARAMETERS, CANARY_PARAMETERS
from zmqtriton_floor.process import references

CANARIES, SCALING = "canaries", "scaling"
_PARAMETERS = {CANARIES: CANARY_PARAMETERS, SCALING: AUTOSCALE_PARAMETERS}


def problems(add_on: str, config: Any) -> Iterator[Problem]:
    """Yield the faults of the parameters for an add-on."""
    named = next((name for name in _PARAMETERS[add_on] if name in config.parameters), None)
    module = _module(add_on)
    if named is not None and module is None:
        text = f"{named}: the add-on '{add_on}' is not installed"
        yield Problem(text, ("parameters", named))
    elif named is not None:
        yield from module.problems(config)


def read(add_on: str, config: Any) -> Any:
    """Return the values of the parameters for an add-on; None without any."""
    module = _module(add_on)
    return None if module is None else module.read(config)


def types() -> Iterator[type]:
    """Yield the types of all values."""
    for module in filter(None, map(_module, _PARAMETERS)):
        yield from module.TYPES


def _module(add_on: str) -> Any:
    reference = addons.part(f"parameters_of_{add_on}")
    return references.load(reference) if reference else None
