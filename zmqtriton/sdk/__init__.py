"""What add-ons are made of; an extra imports this, and what its declaration says that it needs."""

from __future__ import annotations

from zmqtriton.sdk.addon import AddOn, Backend, Command, Option, Process

__all__ = ["AddOn", "Backend", "Command", "Option", "Process"]
