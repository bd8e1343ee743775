"""pb_utils.shared: values that all instances of a process use together, and that are made once.

Not in Triton. With INSTANCES threads a process has all instances of a model; with forks the
instances share values that preload() has made here, until they write to them; an instance in a
process of its own makes its own values.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, TypeVar

from zmqtriton_stub.api.errors import TritonModelException

_Made = TypeVar("_Made")


class _Shared:
    """A named value, or a call that is making it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_made = self.is_being_made = False
        self.value: Any = None


_named: dict[str, _Shared] = {}


def shared(name: str, make: Callable[[], _Made]) -> _Made:
    """Return the result of `make`, which the first caller in this process calls; others wait.

    If it raises, the next caller tries again.
    """
    if not isinstance(name, str):
        raise TypeError(f"shared() takes a name and a function, got {type(name)}")
    one = _named.setdefault(name, _Shared())
    with one.lock:
        if not one.is_made:
            if one.is_being_made:
                raise TritonModelException(
                    f"shared('{name}') is called by its own function: give the two different names"
                )
            one.is_being_made = True
            try:
                one.value = make()
            finally:
                one.is_being_made = False
            one.is_made = True
        made: _Made = one.value
        return made


def names() -> set[str]:
    """Return the names of all values."""
    return set(_named)


def forget(name: str) -> None:
    """Drop a value of this process; the next caller makes another."""
    _named.pop(name, None)


def _forget_threads() -> None:
    """In a fork, release what threads of the parent held, and drop values they were making."""
    for name, one in list(_named.items()):
        if one.is_being_made:
            del _named[name]
        else:
            one.lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_threads)
