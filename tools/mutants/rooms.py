"""The code that mutants are made of: deciding modules in the rooms of every request."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tools.mutants.mutations import Mutation, mutations

ROOT = Path(__file__).resolve().parents[2]
#: The folders of core and standard.
CARRIED = ("zmqtriton", "stub", "frontends", "standard")


class Room(NamedTuple):
    name: str
    #: A package, or a module without its suffix.
    folder: str
    #: Beginnings of paths that are left out: hands, which `tests/repo/test_layers.py` keeps apart
    #: from what decides, and what runs with a framework or a GPU alone.
    without: tuple[str, ...] = ()
    #: Files that decide all the same.
    including: tuple[str, ...] = ()


#: Add-ons that are features of the supervisor.
FEATURES = ("draining", "on_demand", "operations", "reloading")
ROOMS = (
    Room("broker", "zmqtriton/broker", ("requests/answers.py", "sending.py", "service.py")),
    Room(
        "supervisor",
        "zmqtriton/supervisor",
        ("machine/", "service.py"),
        ("machine/process_settings.py",),
    ),
    Room("reading", "zmqtriton/reading", ("reader.py", "staged.py")),
    *(Room(name, f"standard/zmqtriton_standard/{name}") for name in FEATURES),
    Room("scaling", "extras/zmqtriton_extras/scaling", ("tests/",)),
    Room("canaries", "extras/zmqtriton_extras/canaries", ("requests.py", "ctl.py", "tests/")),
    Room("entrance", "frontends/zmqtriton_frontends/entrance"),
    Room("gateway", "frontends/zmqtriton_frontends/gateway"),
    Room(
        "stub",
        "stub/zmqtriton_stub",
        (
            "__main__.py",
            "fork_server.py",
            "memory/gpu",
            "own_process.py",
            "probe.py",
            "process.py",
        ),
    ),
)


def room_of(path: str) -> Room:
    return next(room for room in ROOMS if path.startswith((f"{room.folder}/", f"{room.folder}.py")))


def modules(tree: Path) -> Iterator[str]:
    """Return the path of every deciding module, below this copy of the repository."""
    for room in ROOMS:
        if (tree / f"{room.folder}.py").exists():
            yield f"{room.folder}.py"
        for path in sorted((tree / room.folder).rglob("*.py")):
            inside = path.relative_to(tree / room.folder).as_posix()
            if inside in room.including or not inside.startswith(room.without):
                yield path.relative_to(tree).as_posix()


def carried_modules(tree: Path) -> Iterator[str]:
    """Return the path of every module of core and standard, also of those without decisions."""
    for folder in CARRIED:
        for path in sorted((tree / folder).rglob("*.py")):
            yield path.relative_to(tree).as_posix()


def sample(tree: Path, seed: int, count: int, below: tuple[str, ...] = ()) -> list[Mutation]:
    """Return `count` mutants; a change of the code replaces only the mutants that it touches."""
    paths = [path for path in modules(tree) if path.startswith(below or "")]
    drawn = itertools.islice(draw(tree, seed, paths), count)
    return sorted(drawn, key=lambda m: (m.path, m.line, m.start))


def draw(tree: Path, seed: int, paths: Iterable[str]) -> Iterator[Mutation]:
    """Return the mutants of these modules in the order that the seed decides."""
    every = [mutation for path in paths for mutation in mutations(path, (tree / path).read_bytes())]

    def rank(mutation: Mutation) -> str:
        return hashlib.sha256(f"{seed} {mutation.name}".encode()).hexdigest()

    for mutation in sorted(every, key=rank):
        if mutation.changes((tree / mutation.path).read_bytes()):
            yield mutation
