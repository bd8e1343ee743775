"""The processes that have a model's instances, and whether later code can adopt from them.

A plain model with a single instance, whose model.py has a method adopt(), is hosted as one with
INSTANCES threads: its process can import changed code next to the code that serves.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from zmqtriton.config.backends import PYTHON
from zmqtriton.config.instances import THREADS
from zmqtriton.config.parameters import INSTANCES, kind_of_instances, parameter_text

_ADOPT = b"def adopt("


class Hosting(NamedTuple):
    #: "forks" or "threads" of a process that has loaded the model; "" if each instance loads it.
    instances: str
    #: Why changed code cannot adopt although it has adopt(); "" if it can, or has none.
    why_no_adopt: str = ""


def are_instances_bound(config: Any) -> bool:
    """Return whether a change of instances affects requests."""
    is_bound = config.HasField("sequence_batching") or config.HasField("ensemble_scheduling")
    groups = config.instance_group
    return is_bound or any(each.passive or each.HasField("rate_limiter") for each in groups)


def choose_hosting(config: Any, count: int, files: Iterable[str]) -> Hosting:
    """Return the hosting of a model with so many instances; `files` are its model.py's."""
    kind, named = kind_of_instances(config), parameter_text(config, INSTANCES)
    if kind not in ("", THREADS) or config.backend != PYTHON or not any(map(_has_adopt, files)):
        return Hosting(kind)
    if are_instances_bound(config) or config.response_cache.enable:
        why = "its requests are bound to instances, or its responses are cached"
    elif named == THREADS:
        return Hosting(kind)
    elif named:
        why = f"{INSTANCES} is '{named}'"
    elif count > 1:
        why = f"each of its {count} instances has its own process: set {INSTANCES} to 'threads'"
    else:
        return Hosting(THREADS)
    return Hosting(kind, f"adopt() is not used: {why}")


def _has_adopt(path: str) -> bool:
    with suppress(OSError), open(path, "rb") as file:
        return _ADOPT in file.read()
    return False
