"""The kinds of arenas and mappings: plain ones, or those that log reads of free blocks."""

from __future__ import annotations

import sys
from typing import Any, Callable

from zmqtriton_floor.arena import Arena
from zmqtriton_floor.lazy_names import new_module
from zmqtriton_floor.mappings import Mappings
from zmqtriton_floor.settings.stub import Memory
from zmqtriton_floor.wire import Block

#: Name of the module with the other kinds, a tool for developers that no server is installed with.
_POISON = "tools.poison"


def load_poison(path: str) -> Any:
    """Import the module of the kind that logs reads of free blocks, once in each process."""
    if _POISON not in sys.modules:
        module, load = new_module(_POISON, path)
        load(module)
        sys.modules.setdefault(_POISON, module)  # instances that are threads may come together
    return sys.modules[_POISON]


def make_arena(owner: int, memory: Memory, *, is_gradual: bool = False) -> Arena:
    """Create an arena of the sizes and the kind that these settings name."""
    kind: type[Arena] = load_poison(memory.poison).PoisonedArena if memory.poison else Arena
    return kind(
        owner,
        first_bytes=memory.segment_bytes,
        step_bytes=memory.segment_step_bytes,
        is_gradual=is_gradual,
    )


def make_mappings(
    memory: Memory, *, is_private: bool, on_release: Callable[[list[Block]], None]
) -> Mappings:
    """Create empty mappings of the kind that these settings name."""
    kind: type[Mappings] = (
        load_poison(memory.poison).PoisonedMappings if memory.poison else Mappings
    )
    return kind(is_private=is_private, on_release=on_release)
