"""The installed add-ons, by their declarations. The core asks for kinds, and knows no name.

The distribution's add-ons are in two folders, called shelves; others are named by entry points. An
add-on is imported when something of it is used: only its declaration is read at each start.

Files of entry points are read here as the specification of packaging has them: importlib.metadata
takes 17 to 33 ms of processor time for it, which each command of `zmqtriton-ctl` would pay.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_type_hints

from zmqtriton.sdk.addon import (
    ALL,
    GROUP,
    AddOn,
    Command,
    Offer,
    Option,
    Parameter,
    Port,
    Process,
)
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.lazy_names import load_reference
from zmqtriton_floor.settings.offers import Hook, Offers

#: The packages of the distribution's own add-ons: what every operator expects, and the rest.
SHELVES = ("zmqtriton_standard", "zmqtriton_extras")
#: Names of your commands, with spaces between them. The offer's name is the group of
#: `zmqtriton-ctl --help` that lists them.
GROUPS = Hook[str]("ctl.group")
#: The file of a shelf with an add-on and a name in each line, also of add-ons that are left out.
NAMES = "names.txt"

_log = logging.getLogger(__name__)

#: Name of the declaration's module in packages that models import too.
_BESIDE = "declaration"
_METADATA = (".dist-info", ".egg-info")


class Installed(NamedTuple):
    """An add-on, and its package, where relative references of its declaration begin."""

    declared: AddOn
    package: str
    is_own: bool = True

    def reference(self, text: str) -> str:
        """Return a relative reference of the declaration as an absolute one; "" stays ""."""
        return f"{self.package}{text}".rstrip(".") if text.startswith(".") else text


class DeclaredOption(NamedTuple):
    """An option of an add-on, with the name of its field."""

    field: str
    kind: Any
    default: Any
    declared: Option

    @property
    def name(self) -> str:
        """The name on the command line, without dashes in front."""
        return self.field.replace("_", "-")


@cache
def options() -> dict[str, tuple[DeclaredOption, ...]]:
    """Return the options of each add-on, by its name."""
    return {name: (*_options(each.declared.options),) for name, each in add_ons().items()}


def _options(kind: Any) -> Iterator[DeclaredOption]:
    for field, hint in get_type_hints(kind, include_extras=True).items() if kind else ():
        [option] = hint.__metadata__
        yield DeclaredOption(field, hint.__origin__, kind._field_defaults[field], option)


# ------------------------------------------------------------------------- offers


@cache
def offers() -> Offers:
    """Return the offers of all add-ons, in their order."""
    return Offers(tuple(row for row, _ in _offered()))


def offers_in_use(value_of: Callable[[str], Any]) -> Offers:
    """Return the offers that are on with these options; `value_of` returns an option by field."""
    return Offers(tuple(row for row, on in _offered() if not on or value_of(_field(on))))


def _offered() -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield each row of offers, and the option that must be on for it."""
    for each in add_ons().values():
        for kind, value in each.declared.offers.items():
            several = (value,) if isinstance(value, str | Offer) else value
            rows = several.items() if isinstance(several, Mapping) else (("", x) for x in several)
            for name, one in rows:
                reference, on = one if isinstance(one, Offer) else (one, "")
                yield (kind, name, each.reference(reference)), on


def offering(kind: str) -> list[Installed]:
    """Return the add-ons that offer something of a kind."""
    return [each for each in add_ons().values() if kind in each.declared.offers]


# ------------------------------------------------------------------------- declarations


def load_public(name: str) -> Any:
    """Import the object with a public name. Raises AttributeError without an add-on for it."""
    reference = find("public", name)
    if not reference:
        raise AttributeError(f"no add-on that is installed has 'zmqtriton.{name}'")
    return load_reference(reference)


def find(field: str, name: str) -> str:
    """Return the reference that a field of some add-on's declaration has for a name, or ""."""
    for found in (own_add_ons, add_ons):  # other packages only if it is not our own
        for each in found().values():
            if value := getattr(each.declared, field).get(name):
                return each.reference(getattr(value, "run", value))
    return ""


def verbs() -> dict[str, str]:
    """Return the group of each command of `zmqtriton-ctl` by the command's name; "" for none.

    The commands of a group stand together, in the order of their names.
    """
    groups = [*offers().pairs(GROUPS.name)]
    names = (name for each in add_ons().values() for name in each.declared.ctl)
    group_of = dict.fromkeys(names, "") | {n: group for group, ns in groups for n in ns.split()}
    order = [*(group for group, _ in groups), ""]
    return dict(sorted(group_of.items(), key=lambda row: (order.index(row[1]), row[0])))


def usages() -> dict[str, str]:
    """Return the usage of each command of `zmqtriton`; just its name if none is declared."""
    return {
        name: (command.usage if isinstance(command, Command) else "") or name
        for each in add_ons().values()
        for name, command in each.declared.commands.items()
    }


def processes() -> dict[str, tuple[str, Process]]:
    """Return the module and the declaration of each process, by its name."""
    return {
        process.name or each.declared.name: (each.reference(process.module), process)
        for each in reversed(add_ons().values())
        if (process := each.declared.process) is not None
    }


def services() -> dict[str, Process]:
    """Return the processes that serve requests, by name; their options are named by field."""
    return {
        process.name or each.declared.name: process._replace(
            on=_field(process.on),
            group=_field(process.group),
            restrictions=_field(process.restrictions),
        )
        for each in add_ons().values()
        if (process := each.declared.process) is not None and process.is_serving
    }


@cache
def ports() -> tuple[Port, ...]:
    """Return the ports of add-ons; their options are named by field."""
    return tuple(
        port._replace(
            number=_field(port.number),
            serve=each.reference(port.serve),
            on=_field(port.on or port.number),
            requests=port.requests or port.title,
            range_of_others=_field(port.range_of_others),
        )
        for each in add_ons().values()
        for port in each.declared.ports
    )


def ports_in_use(value_of: Callable[[str], Any]) -> list[Port]:
    """Return the ports that are on; the number 0 means any free port."""
    values = ((port, value_of(port.on)) for port in ports())
    return [port for port, value in values if value is not None and value is not False]


def lack(name: str) -> str:
    """Return which missing add-on an option such as `--greeting`, or a parameter, needs; or "".

    Only add-ons of the distribution are known without their folders.
    """
    add_on = _known().get(name)
    is_here = add_on is None or add_on in add_ons()
    return "" if is_here else f"the add-on '{add_on}' is not installed"


@cache
def _known() -> dict[str, str]:
    return {
        name: add_on
        for shelf in _shelves()
        if (path := Path(shelf, NAMES)).exists()
        for add_on, name in map(str.split, path.read_text("utf-8").splitlines())
    }


def is_own(package: str) -> bool:
    """Return whether a package comes with the server."""
    return package.startswith(SHELVES)


def directory_of(package: str) -> Path:
    """Return the directory of a package; imports only the packages that contain it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InvalidArgument(
            f"there is no package '{package}', which an add-on declares: install it"
        )
    return Path(spec.submodule_search_locations[0])


def described_parameters() -> dict[str, dict[str, Parameter]]:
    """Return the parameters of our own add-ons, with descriptions, by the add-ons' titles."""
    return {
        each.declared.title: {
            name: parameter
            for name, parameter in each.declared.parameters.items()
            if isinstance(parameter, Parameter)
        }
        for each in own_add_ons().values()
        if each.declared.parameters
    }


def parameters() -> list[str]:
    """Return the parameters of config.pbtxt that add-ons read."""
    return [name for each in add_ons().values() for name in each.declared.parameters]


def _field(option: str) -> str:
    return option.replace("-", "_")


# ------------------------------------------------------------------------- add-ons


@cache
def add_ons() -> dict[str, Installed]:
    """Return all add-ons by their names, in the order that they ask for; our own come first."""
    return _arranged((*own_add_ons().values(), *_of_others()))


@cache
def own_add_ons() -> dict[str, Installed]:
    """Return the distribution's own add-ons, without a look at other packages."""
    return _arranged(_own())


def _arranged(add_ons: Iterable[Installed]) -> dict[str, Installed]:
    found: dict[str, Installed] = {}
    for each in add_ons:
        found.setdefault(each.declared.name, each)
    for name, each in [*found.items()]:
        missing = [need for need in each.declared.needs if need not in found]
        if missing:
            _log.info("the add-on '%s' is left out: it needs '%s'", name, "', '".join(missing))
            del found[name]
    return {name: found[name] for name in _ordered(found)}


def _own() -> Iterator[Installed]:
    for directory in _shelves():
        shelf = os.path.basename(directory)
        for name in sorted(os.listdir(directory)):
            if os.path.exists(f"{directory}/{name}/{_BESIDE}.py"):
                module = importlib.import_module(f"{shelf}.{name}.{_BESIDE}")
            elif os.path.exists(f"{directory}/{name}/__init__.py"):
                module = importlib.import_module(f"{shelf}.{name}")
            else:
                continue
            if add_on := vars(module).get("ADDON"):
                yield Installed(add_on, _package_of(module))


def _shelves() -> Iterator[str]:
    """Yield the directories of the installed shelves."""
    for shelf in SHELVES:
        try:
            [directory] = importlib.import_module(shelf).__path__
        except ModuleNotFoundError as error:
            if error.name != shelf:
                raise
        else:
            yield directory


def _of_others() -> Iterator[Installed]:
    for text in _entry_points(sys.path):
        for name, reference in _parse(text):
            name_of_module, _, attribute = reference.partition(":")
            try:
                module = importlib.import_module(name_of_module)
                add_on = getattr(module, attribute or "ADDON")
                if not isinstance(add_on, AddOn):
                    raise TypeError(f"{reference} must be an AddOn")
            except Exception as error:  # noqa: BLE001 - it is not ours, and others serve without it
                _log.warning("the add-on '%s' cannot be used: %s", name, error)
            else:
                yield Installed(add_on, _package_of(module), is_own=False)


def _package_of(module: ModuleType) -> str:
    """Return the package that relative references of a declaration begin in."""
    return module.__name__ if hasattr(module, "__path__") else module.__package__ or module.__name__


def _ordered(found: Mapping[str, Installed]) -> list[str]:
    """Return the names in their order, but each after the names that it must follow."""
    ordered: list[str] = []

    def place(name: str, around: tuple[str, ...]) -> None:
        if name in ordered or name in around:  # two that come after each other stand as they are
            return
        after = found[name].declared.after
        others = [n for n, each in found.items() if ALL not in each.declared.after]
        for before in others if ALL in after else after:
            if before in found:
                place(before, (*around, name))
        ordered.append(name)

    for name in found:
        place(name, ())
    return ordered


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


def _parse(text: str) -> Iterator[tuple[str, str]]:
    """Return name and reference of each add-on that a file of entry points has."""
    if f"[{GROUP}]" not in text:
        return
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif group == GROUP and "=" in line and not line.startswith(("#", ";")):
            name, _, reference = line.partition("=")
            # extras after the reference are history, and say nothing
            yield name.strip(), reference.partition("[")[0].strip()
