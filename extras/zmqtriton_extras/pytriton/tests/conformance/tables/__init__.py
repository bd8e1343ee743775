"""Every table of cases for a host, and the scripts that are cases themselves."""

from __future__ import annotations

from types import ModuleType

from zmqtriton_extras.pytriton.tests.conformance.tables import (
    answers,
    configured,
    decorated,
    forms,
    kinds,
    requests,
)

TABLES: dict[str, ModuleType] = {
    table.__name__.rpartition(".")[2]: table
    for table in (forms, answers, requests, kinds, decorated, configured)
}
#: Scripts whose functions are cases, and the models that they ask a host for.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "lifecycle": (),
    "asking": ("asked",),
}
#: Whose models a host of everything has.
SCRIPTS = tuple(
    dict.fromkeys(
        [
            *(name for table in TABLES.values() for name in table.SCRIPTS),
            *(name for names in PROGRAMS.values() for name in names),
        ]
    )
)
