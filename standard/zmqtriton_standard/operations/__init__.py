"""What operators do to models and repositories while they serve."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "operations",
    features=(".operations:Operations", ".operations:RepositoryRegistry"),
)
