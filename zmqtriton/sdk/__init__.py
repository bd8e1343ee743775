"""Declarations of add-ons. An add-on imports this, the pages of the sdk, its needs, and itself."""

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
