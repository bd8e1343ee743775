"""The features of the server; the core calls their hooks in this order.

Imported only where a core is built. A new feature adds its class here; a feature that a server can
do without is an add-on.
"""

from __future__ import annotations

from zmqtriton import addons
from zmqtriton.supervisor.features.feature import Feature
from zmqtriton.supervisor.features.settings import LogSettingsFeature
from zmqtriton_floor.settings.offers import Hook

#: Hooks of the supervisor, and control calls; the core continues if a hook fails.
FEATURE = Hook[type[Feature]]("supervisor.feature")


def all_features() -> tuple[type[Feature], ...]:
    """Return the features of the core, then those of add-ons."""
    return (LogSettingsFeature, *FEATURE.all_of(addons.offers()))
