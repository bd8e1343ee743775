"""The options of add-ons in the form that processes get."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from zmqtriton import addons
from zmqtriton.addons import DeclaredOption
from zmqtriton.options import Options


def told_to_all(options: Options, ports: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    """Return the options of each add-on for all frontends, with the ports as bound."""
    return tuple(
        (name, _document(options, ports, [o for o in declared if not o.declared.is_secret]))
        for name, declared in addons.options().items()
        if declared
    )


def told_alone(options: Options, ports: Mapping[str, int]) -> dict[str, tuple[str, str]]:
    """Return the options of add-ons with secret ones, by the role of the process that has them."""
    processes = {name: found.declared.process for name, found in addons.add_ons().items()}
    return {
        process.name or name: (name, _document(options, ports, declared))
        for name, declared in addons.options().items()
        if (process := processes[name]) is not None
        and any(each.declared.is_secret for each in declared)
    }


def _document(
    options: Options, ports: Mapping[str, int], declared: Iterable[DeclaredOption]
) -> str:
    return json.dumps({o.field: ports.get(o.field, options.value(o.field)) for o in declared})
