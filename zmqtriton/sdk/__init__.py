"""Kinds of things that add-ons have; an extra imports this, and what it says that it needs."""

from zmqtriton.sdk.addon import (
    AddOn,
    Command,
    Offer,
    Option,
    Parameter,
    Port,
    Process,
)

__all__ = [
    "AddOn",
    "Command",
    "Offer",
    "Option",
    "Parameter",
    "Port",
    "Process",
]
