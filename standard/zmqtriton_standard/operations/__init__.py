"""Restarts, stacks and repositories: operations on models while they serve."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "operations",
    feature=(".operations:Operations", ".repositories:RepositoryRegistry"),
)
