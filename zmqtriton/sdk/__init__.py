"""Kinds of things that add-ons have; an extra imports this, and what it says that it needs."""

from zmqtriton.sdk.addon import (
    AddOn,
    Backend,
    ChatTemplate,
    Command,
    Option,
    Parameter,
    Port,
    Process,
)

__all__ = [
    "AddOn",
    "Backend",
    "ChatTemplate",
    "Command",
    "Option",
    "Parameter",
    "Port",
    "Process",
]
