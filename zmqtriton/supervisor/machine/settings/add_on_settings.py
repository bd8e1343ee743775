"""The options of add-ons in the form that processes get."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from zmqtriton import addons
from zmqtriton.options import Options
from zmqtriton.sdk.addon import Option


def told_to_all(options: Options, ports: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    """Return the options of each add-on for all frontends; `ports` are as bound."""
    return tuple(
        (name, _document(options, ports, [o for o in found.declared.options if not o.is_secret]))
        for name, found in addons.add_ons().items()
        if found.declared.options
    )


def told_alone(options: Options, ports: Mapping[str, int]) -> dict[str, tuple[str, str]]:
    """Return the options of add-ons with secret ones, by the role of the process that has them."""
    return {
        process.name or name: (name, _document(options, ports, found.declared.options))
        for name, found in addons.add_ons().items()
        if (process := found.declared.process) is not None
        and any(each.is_secret for each in found.declared.options)
    }


def _document(options: Options, ports: Mapping[str, int], declared: Sequence[Option]) -> str:
    return json.dumps({o.field: ports.get(o.field, options.value(o.field)) for o in declared})
