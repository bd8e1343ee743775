"""Model repositories in stores (s3://, gs://, as://, hf://, oci://): read, and copied here."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Process

ADDON = AddOn(
    "storage",
    needs=("environments",),
    process=Process(".", title="Storage", is_on_demand=True),
    offers={
        "supervisor.feature": ".object_stores:ObjectStores",
        "repository.stores": ".places",
    },
)
