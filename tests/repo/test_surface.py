"""Add-ons import of the core what a list has, and packages on it have exactly the names in use."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT
from tests.repo.sources import Source, imported, modules, sources, within
from tests.repo.surface import SURFACE

#: Two stand where scripts import them.
ADD_ONS = ("zmqtriton_addons", "zmqtriton.embedded", "zmqtriton.pytriton")
FLOOR = ("zmqtriton_floor",)
#: The modules of the core that have names of an add-on.
PUBLIC_NAMES = {
    "zmqtriton",
    "zmqtriton.addons",
    "zmqtriton.ctl",
    "zmqtriton.ctl.main",
    "zmqtriton.door",
    "zmqtriton.ray",
    "zmqtriton.routes",
    "zmqtriton.testing",
}
#: The packages on the list whose names come from their modules.
FRONTS = sorted(
    module
    for module, path in modules().items()
    if module in SURFACE and "lazy_names" in path.read_text("utf-8")
)


def core_imports(source: Source) -> Iterator[tuple[int, str, str]]:
    """(line, module, name in it) of what an add-on imports of the core; of a module alone ""."""
    for line, full_name in imported(source):
        if full_name.startswith("zmqtriton") and not within(full_name, (*ADD_ONS, *FLOOR)):
            is_module = full_name in modules()
            module, _, name = (full_name, "", "") if is_module else full_name.rpartition(".")
            yield line, module, name


def of_add_ons() -> list[Source]:
    return [source for source in sources() if within(source.module, ADD_ONS)]


def faults(source: Source) -> list[str]:
    return [
        f"{source.path.relative_to(ROOT)}:{line} imports {module}, which surface.py does not list"
        for line, module, name in core_imports(source)
        if module not in SURFACE or name.startswith("_")
    ]


def test_add_ons_import_nothing_else_of_the_core() -> None:
    assert [] == [fault for source in of_add_ons() for fault in faults(source)]


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("from zmqtriton.config import Problem", True),
        ("from zmqtriton_floor import wire", True),
        ("from zmqtriton_addons.tools import doctor", True),
        ("from zmqtriton.config.errors import Problem", False),
        ("from zmqtriton.config import errors", False),
        ("import zmqtriton.broker.requests.lifecycle", False),
        ("def f():\n    from zmqtriton.supervisor.core import Core", False),
    ],
)
def test_an_import_of_something_else_is_noticed(text: str, is_allowed: bool) -> None:
    source = Source("zmqtriton_addons.tools.x", ROOT / "x.py", ast.parse(text))

    assert is_allowed is not bool(faults(source))


def test_the_core_knows_no_add_on() -> None:
    """But by the names that programs import."""
    of_core = [source for source in sources() if not within(source.module, ADD_ONS)]

    assert PUBLIC_NAMES == {
        source.module for source in of_core for _, name in imported(source) if within(name, ADD_ONS)
    }


def test_each_line_of_the_list_is_used() -> None:
    used = {module for source in of_add_ons() for _, module, _ in core_imports(source)}

    assert [] == sorted(SURFACE.keys() - used), "take it off the list"


@pytest.mark.parametrize("package", FRONTS)
def test_a_package_has_the_names_that_are_used_and_types_see_the_same(package: str) -> None:
    used = {
        name for each in of_add_ons() for _, module, name in core_imports(each) if module == package
    }
    [source] = [source for source in sources() if source.module == package]
    typed = {
        name.removeprefix(f"{package}.") for _, name in imported(source) if within(name, (package,))
    }
    loaded = importlib.import_module(package)
    named = {
        f"{module}.{name}" for module, names in loaded._NAMES.items() for name in names.split()
    }

    assert named == typed
    assert used == {name.rpartition(".")[2] for name in named}
    assert [] == [name for name in used if not hasattr(loaded, name)]
