"""What a stub says of its load, as events of its instance."""

from __future__ import annotations

from typing import Any

from zmqtriton.supervisor import states
from zmqtriton_floor import wire


def stub_message(message: Any) -> states.Event | None:
    """The event that a stub's message is, or None if it is none."""
    if isinstance(message, wire.Completed):
        return states.ConfigCompleted(message.config)
    if isinstance(message, wire.Loaded):
        return states.ModelLoaded(bool(message.is_asked))
    if isinstance(message, wire.Failed):
        return states.LoadFailed(message.text, message.code)
    return None
