"""The add-ons that are here, by their declarations. The core asks for kinds, and knows no name.

Those of the distribution lie on two shelves, a folder each; others are named by entry points. An
add-on is imported when something of it is used: its declaration alone is read at each start.

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
from typing import Any, NamedTuple

from zmqtriton.sdk.addon import (
    ALL,
    GROUP,
    AddOn,
    Backend,
    Command,
    Parameter,
    Port,
    Process,
    TaskCode,
)
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.lazy_names import load_reference

#: Kinds that a process takes from one add-on only, the first that has it.
_OF_PROCESSES = (
    "placement",
    "division",
    "model_steps",
    "samples",
    "page_form",
    "example",
)
#: The packages of the distribution's own add-ons: what every operator expects, and the rest.
SHELVES = ("zmqtriton_standard", "zmqtriton_extras")
#: The file of a shelf with an add-on and a name in each line, also of add-ons that are left out.
NAMES = "names.txt"

_log = logging.getLogger(__name__)

#: The module with the declaration of a package that models import, where nothing else of us is.
_BESIDE = "declaration"
_METADATA = (".dist-info", ".egg-info")


class Installed(NamedTuple):
    """An add-on, and its package: relative references of its declaration begin there."""

    declared: AddOn
    package: str
    is_own: bool = True

    def reference(self, text: str) -> str:
        """Return a reference of the declaration as one of any module; "" stays as it is."""
        return f"{self.package}{text}".rstrip(".") if text.startswith(".") else text


class Package(NamedTuple):
    """A package that an add-on declares, and its directory."""

    name: str
    directory: Path


# ------------------------------------------------------------------------- kinds


def references(kind: str) -> list[str]:
    """Return the references of all add-ons that have something of a kind, in their order."""
    return [
        each.reference(text)
        for each in add_ons().values()
        for text in _texts(getattr(each.declared, kind))
    ]


def reference(kind: str) -> str:
    """Return the reference of a kind that a server has one of; "" without an add-on for it."""
    return next(iter(references(kind)), "")


def parts() -> dict[str, str]:
    """Return the references of the kinds that a process has one of, by kind."""
    placed_by = next(iter(parameters_of("placement")), "")
    return {"placed_by": placed_by, **{kind: reference(kind) for kind in _OF_PROCESSES}}


def transport(name: str) -> str:
    """Return the reference of a transport of gRPC by the name of its add-on; "" without that."""
    found = add_ons().get(name)
    return found.reference(found.declared.transport) if found else ""


def named(kind: str) -> dict[str, str]:
    """Return the references of a kind that has names, by these."""
    return {
        name: each.reference(text)
        for each in reversed(add_ons().values())  # of two with a name the first counts
        for name, text in getattr(each.declared, kind).items()
    }


def load_public(name: str) -> Any:
    """Import the object with a public name. Raises AttributeError without an add-on for it."""
    reference = find("public", name)
    if not reference:
        raise AttributeError(f"no add-on that is installed has 'zmqtriton.{name}'")
    return load_reference(reference)


def find(kind: str, name: str) -> str:
    """Return the reference of one of a kind that has names, or ""."""
    return _find(lambda add_on: getattr(add_on, kind).get(name, ""))


def find_command(name: str) -> str:
    """Return the reference of a command of `zmqtriton`, or ""."""
    return _find(lambda add_on: _command(add_on.commands.get(name, "")).run)


def _find(text_of: Callable[[AddOn], str]) -> str:
    """Return the first reference; other packages are looked at only if it is not our own."""
    for found in (own_add_ons, add_ons):
        for each in found().values():
            if text := text_of(each.declared):
                return each.reference(text)
    return ""


def verbs() -> list[str]:
    """Return the names of the commands of `zmqtriton-ctl`."""
    return sorted({name for each in add_ons().values() for name in each.declared.ctl})


def usages() -> dict[str, str]:
    """Return the usage of each command of `zmqtriton`; just its name if none is declared."""
    return {
        name: _command(command).usage or name
        for each in add_ons().values()
        for name, command in each.declared.commands.items()
    }


def references_in_use(kind: str, value_of: Callable[[str], Any]) -> tuple[str, ...]:
    """Return the references of a kind, but for add-ons whose process is off."""
    return tuple(
        each.reference(text)
        for each in add_ons().values()
        if _is_on(each.declared.process, value_of)
        for text in _texts(getattr(each.declared, kind))
    )


def _is_on(process: Process | None, value_of: Callable[[str], Any]) -> bool:
    return process is None or not process.on or bool(value_of(_field(process.on)))


def processes() -> dict[str, tuple[str, Process]]:
    """Return the module and the declaration of each process, by its name."""
    return {
        process.name or each.declared.name: (each.reference(process.module), process)
        for each in reversed(add_ons().values())
        if (process := each.declared.process) is not None
    }


def services() -> dict[str, Process]:
    """Return the processes that serve requests, by name, with options by their fields."""
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
    """Return the ports of add-ons, with options by their fields."""
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


def http_categories() -> tuple[str, ...]:
    """Return the categories of routes that add-ons have beside the core's."""
    return tuple(name for each in add_ons().values() for name in each.declared.http_categories)


def problems(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of the options, which are given by their fields."""
    for each in add_ons().values():
        if each.declared.check and _is_on(each.declared.process, values.__getitem__):
            problem: str = load_reference(each.reference(each.declared.check))(values)
            if problem:
                yield problem


def with_kind(kind: str) -> list[Installed]:
    """Return the add-ons that have something of a kind."""
    return [each for each in add_ons().values() if getattr(each.declared, kind)]


def frameworks() -> Mapping[str, tuple[str, str]]:
    """Return, by backends, the module that one imports and the packages that bring it."""
    return {
        name: (backend.module, backend.brought_by)
        for each in add_ons().values()
        for name, value in each.declared.backends.items()
        if (backend := _backend(value)).module
    }


def extensions(value_of: Callable[[str], Any]) -> list[str]:
    """Return the names of extensions of the protocol that options turn on."""
    return [
        each.declared.extension
        for each in add_ons().values()
        if each.declared.extension and value_of(_field(each.declared.extension_on))
    ]


def lack(name: str) -> str:
    """Say which add-on an option such as `--greeting`, or a parameter, lacks; "" if it is here.

    "" is said of all else. Only add-ons of the distribution are known without their folders.
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


@cache
def backend_package(name: str) -> Package | None:
    """Return the package of an add-on's backend; None without one, or without its files."""
    for each in add_ons().values():
        if name in each.declared.backends:
            package = each.reference(_backend(each.declared.backends[name]).package)
            try:
                return Package(package, directory_of(package))
            except (ImportError, InvalidArgument) as error:
                _log.warning("the backend '%s' of an add-on cannot be used: %s", name, error)
                return None
    return None


@cache
def tasks() -> dict[str, TaskCode]:
    """Return the functions that instances run when they are asked to, by name."""
    codes: dict[str, TaskCode] = {}
    for name, text in named("tasks").items():
        module, _, function = text.partition(":")
        spec = importlib.util.find_spec(module)  # not imported: it is for other Pythons
        if spec is not None and spec.origin is not None:
            codes[name] = TaskCode(spec.origin, function)
    return codes


def models_in(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return the backend that runs a Python file, and its models; ("", ()) for Triton's own."""
    for each in add_ons().values():
        for name, value in each.declared.backends.items():
            if reference := _backend(value).models_in:
                models: tuple[str, ...] = load_reference(each.reference(reference))(path)
                if models:
                    return name, models
    return "", ()


def is_own(package: str) -> bool:
    """Return whether a package comes with the server."""
    return package.startswith(SHELVES)


def directory_of(package: str) -> Path:
    """Return the directory of a package that is not imported, only those around it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InvalidArgument(f"there is no package '{package}', which an add-on declares")
    return Path(spec.submodule_search_locations[0])


def parameters_of(kind: str) -> list[str]:
    """Return the parameters of config.pbtxt of the first add-on that has something of a kind."""
    return [*next((each.declared.parameters for each in with_kind(kind)), ())]


def described_parameters() -> dict[str, dict[str, Parameter]]:
    """Return the parameters of our own add-ons by the add-ons' titles, with what each is."""
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


def _command(value: Command | str) -> Command:
    return Command(value) if isinstance(value, str) else value


def _backend(value: Backend | str) -> Backend:
    return Backend(value) if isinstance(value, str) else value


def _texts(value: str | tuple[str, ...]) -> Iterable[str]:
    return value if isinstance(value, tuple) else filter(None, [value])


def _field(option: str) -> str:
    return option.replace("-", "_")


# ------------------------------------------------------------------------- add-ons


@cache
def add_ons() -> dict[str, Installed]:
    """Return all add-ons by their names, in the order that they ask for; our own come first."""
    return _arranged((*own_add_ons().values(), *_of_others()))


@cache
def own_add_ons() -> dict[str, Installed]:
    """Return the distribution's own, without a look at other packages."""
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
    """Yield the directories of the shelves that are here."""
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
                    raise TypeError(f"{reference} is no AddOn")
            except Exception as error:  # noqa: BLE001 - it is not ours, and others serve without it
                _log.warning("the add-on '%s' cannot be used: %s", name, error)
            else:
                yield Installed(add_on, _package_of(module), is_own=False)


def _package_of(module: ModuleType) -> str:
    """Return the package that relative references of a declaration begin in."""
    return module.__name__ if hasattr(module, "__path__") else module.__package__ or module.__name__


def _ordered(found: Mapping[str, Installed]) -> list[str]:
    """Return the names, each behind those that it comes after, else as they are."""
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
