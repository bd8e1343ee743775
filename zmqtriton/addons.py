"""The tables in which add-ons declare what they add to the server. The core knows no row of them.

A row is a name and a reference, `module:attribute` or `module`, which is imported when it is used.
The distribution's own rows stand in `zmqtriton_addons.table`, those of other packages in their
entry points, in the group that is named like the table. A name that is taken stays what it is.

Files of entry points are read here as the specification of packaging has them: importlib.metadata
takes 17 to 33 ms of processor time for it, which each command of `zmqtriton-ctl` would pay.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from zmqtriton_floor.errors import InvalidArgument

if TYPE_CHECKING:
    from zmqtriton.embedded.connection import Connection

#: Commands of `zmqtriton`: functions that take the words after the name and return the status.
COMMANDS = "zmqtriton.commands"
#: Commands of `zmqtriton-ctl`: commands of click.
CTL = "zmqtriton.ctl"
#: `HttpExtension`s of the HTTP frontend.
HTTP = "zmqtriton.http"
#: Modules that are run as processes of the server.
PROCESSES = "zmqtriton.processes"
#: Functions that take a gateway and return a step, which each request of a frontend takes.
STEPS = "zmqtriton.steps"
#: Packages with a `model.py`, which runs models whose configuration names the backend.
BACKENDS = "zmqtriton.backends"
#: Functions that take a client, a model and a version and return why that is not ready.
EXPLANATIONS = "zmqtriton.explanations"
#: Features of the supervisor, `Feature`s by name. They use the inside of the core, so other
#: packages cannot declare any.
FEATURES = "zmqtriton.features"
#: Parts of processes that only our own add-ons have. In the supervisor `control_groups` has the
#: kernel limit models, `stores` knows addresses of repositories, and modules `parameters_of_…` read
#: what a model asks of a feature; in frontends `division` divides the requests to a model between
#: two versions, `steps_of_models` returns the steps of requests to one, and `grpcio` carries RPCs
#: by that library; in the metrics process `history` keeps samples and answers for them,
#: `agent_check` answers HAProxy, and `open_metrics` chooses the form of the page; in the broker
#: `affinity` has a scheduler follow its model's, whose errors `affinity_problems` finds.
PARTS = "zmqtriton.parts"
#: What other packages may add to.
TABLES = (COMMANDS, CTL, HTTP, PROCESSES, STEPS, BACKENDS, EXPLANATIONS)

#: The package of the distribution's own add-ons.
OWN_PACKAGE = "zmqtriton_addons"
_OWN_ROWS = f"{OWN_PACKAGE}.table"


class LocalService(NamedTuple):
    """A service of a process of our own add-ons, most of them at a socket on this machine.

    The process, its role and the socket in the runtime directory have one name. The rest are fields
    of the options, which stand in the core's table; so other packages cannot declare any.
    """

    #: Turns it on.
    switch: str
    #: Admits a group of users; "": the server's own user alone connects.
    group: str = ""
    #: Requires keys for some verbs; "": its clients were checked by HTTP, whose tokens it knows.
    restrictions: str = ""
    #: Further options of it, for frontends.
    options: tuple[str, ...] = ()
    #: A step of each request while it is on, as in the table of steps; "" for none.
    step: str = ""
    #: Makes, of a gateway, the function that returns its text for the page of metrics; "" for none.
    metrics: str = ""
    #: Returns what is wrong with the options, or ""; asked if it is on.
    check: str = ""
    #: Whether clients on this machine connect to it.
    has_socket: bool = True


_log = logging.getLogger(__name__)

_METADATA = (".dist-info", ".egg-info")


class Package(NamedTuple):
    """A package that an add-on declares, and where it lies."""

    name: str
    directory: Path


def connect() -> Connection:
    """Connect this process to the server that has started it, with the server's own rights.

    Such a process has `--lifeline FD` on its command line. Raises NoServerError without one.
    """
    import argparse  # here, as below: each command line imports this module

    from zmqtriton.control_client import NoServerError
    from zmqtriton.embedded.connection import connect_by

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--lifeline", type=int)
    lifeline = parser.parse_known_args()[0].lifeline
    if lifeline is None:
        raise NoServerError("no server has started this process: it has no --lifeline")
    return connect_by(lifeline)


def rows(table: str) -> dict[str, str]:
    """Return the references of a table by name: first our own, then those of other packages."""
    return {**_foreign_rows().get(table, {}), **own_rows().get(table, {})}


def find(table: str, name: str) -> str | None:
    """Return the reference of one row; other packages are looked at only if it is not our own."""
    return own_rows().get(table, {}).get(name) or _foreign_rows().get(table, {}).get(name)


def directory_of(reference: str) -> Path:
    """Return the directory of a package that is not imported, only those around it."""
    spec = importlib.util.find_spec(reference)
    if spec is None or not spec.submodule_search_locations:
        raise InvalidArgument(f"there is no package '{reference}', which an add-on declares")
    return Path(spec.submodule_search_locations[0])


@cache
def backend_package(name: str) -> Package | None:
    """Return the package of an add-on's backend; None without one, or without its files."""
    reference = find(BACKENDS, name)
    if reference is None:
        return None
    try:
        return Package(reference, directory_of(reference))
    except (ImportError, InvalidArgument) as error:
        _log.warning("the backend '%s' of an add-on cannot be used: %s", name, error)
        return None


def frameworks() -> Mapping[str, tuple[str, str]]:
    """Return, by our own backends, the module that one imports and the packages that bring it."""
    needs: Mapping[str, tuple[str, str]] = getattr(_own_declarations(), "FRAMEWORKS", {})
    return needs


def own_usages() -> Mapping[str, str]:
    """Return how the commands of our own add-ons are used."""
    usages: Mapping[str, str] = getattr(_own_declarations(), "USAGES", {})
    return usages


def usages_of_others() -> dict[str, str]:
    """Return the commands of other packages: their names, which are all that is known of them."""
    return {name: name for name in sorted(rows_of_others(COMMANDS))}


def rows_of_others(table: str) -> dict[str, str]:
    """Return the references of a table that are not our own, by name."""
    own = own_rows().get(table, {})
    return {k: v for k, v in _foreign_rows().get(table, {}).items() if k not in own}


def own_rows() -> Mapping[str, Mapping[str, str]]:
    """Return the tables of the distribution's own add-ons; empty without any."""
    tables: Mapping[str, Mapping[str, str]] = getattr(_own_declarations(), "TABLES", {})
    return tables


def features() -> Mapping[str, str]:
    """Return the references of the supervisor's features of our own add-ons, by name."""
    return own_rows().get(FEATURES, {})


def part(name: str) -> str:
    """Return the reference of one of PARTS; "" without the add-on."""
    return own_rows().get(PARTS, {}).get(name, "")


def local_services() -> dict[str, LocalService]:
    """Return the services of our own add-ons on this machine, by name."""
    services: Mapping[str, Mapping[str, Any]]
    services = getattr(_own_declarations(), "LOCAL_SERVICES", {})
    return {name: LocalService(**service) for name, service in services.items()}


@cache
def _own_declarations() -> ModuleType | None:
    try:
        return importlib.import_module(_OWN_ROWS)
    except ModuleNotFoundError as error:
        if error.name and not _OWN_ROWS.startswith(error.name):
            raise
        return None


@cache
def _foreign_rows() -> dict[str, dict[str, str]]:
    """Return the tables that other packages add to; of two rows with a name the first counts."""
    tables: dict[str, dict[str, str]] = {}
    for text in _entry_points(sys.path):
        for table, name, reference in _parse(text):
            if table in TABLES:
                tables.setdefault(table, {}).setdefault(name, reference)
    return tables


def _entry_points(path: list[str]) -> Iterator[str]:
    """Read the files of entry points, of each distribution that Python would find."""
    distributions: set[str] = set()
    for place in path:
        try:
            entries = sorted(os.listdir(place or "."))
        except OSError:
            continue  # most of the path need not exist
        for entry in entries:
            if entry.endswith(_METADATA) and entry not in distributions:
                distributions.add(entry)
                try:
                    text = Path(place, entry, "entry_points.txt").read_text("utf-8")
                except (OSError, UnicodeDecodeError):
                    continue  # most distributions have none
                yield text


def _parse(text: str) -> Iterator[tuple[str, str, str]]:
    """Return group, name and reference of each line."""
    if "[zmqtriton." not in text:
        return
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif "=" in line and not line.startswith(("#", ";")):
            name, _, reference = line.partition("=")
            # extras after the reference are history, and say nothing
            yield group, name.strip(), reference.partition("[")[0].strip()
