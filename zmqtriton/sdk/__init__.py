"""Kinds of things that add-ons have; an extra imports this, and what it says that it needs."""

from __future__ import annotations

from zmqtriton.sdk.addon import AddOn, Backend, Command, Option, Parameter, Process

__all__ = ["AddOn", "Backend", "Command", "Option", "Parameter", "Process"]
