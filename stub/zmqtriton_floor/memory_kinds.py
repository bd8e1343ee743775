"""The kinds of arenas and mappings: plain ones, or those that look for reads of free blocks."""

from __future__ import annotations

from typing import Callable

from zmqtriton_floor.arena import Arena
from zmqtriton_floor.mappings import Mappings
from zmqtriton_floor.settings.stub import Memory
from zmqtriton_floor.wire import Block


def make_arena(owner: int, memory: Memory, *, is_gradual: bool = False) -> Arena:
    """Create an arena of the sizes and the kind of these settings."""
    kind = Arena
    if memory.is_poisoned:
        from zmqtriton_floor.poison import PoisonedArena  # for debugging alone

        kind = PoisonedArena
    return kind(
        owner,
        first_bytes=memory.segment_bytes,
        step_bytes=memory.segment_step_bytes,
        is_gradual=is_gradual,
    )


def make_mappings(
    memory: Memory, *, is_private: bool, on_release: Callable[[list[Block]], None]
) -> Mappings:
    """Create empty mappings of the kind of these settings."""
    kind = Mappings
    if memory.is_poisoned:
        from zmqtriton_floor.poison import PoisonedMappings  # for debugging alone

        kind = PoisonedMappings
    return kind(is_private=is_private, on_release=on_release)
