"""Packages that were imported ahead: what a model sees of them, and when."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqtriton_stub import imports
from zmqtriton_stub.spare import Store

_VARIABLE = "ZT_SPARE_TEST"
#: Packages of these tests begin so.
_OURS = "zt_ahead"
_HEAVY = f"""
import os, warnings
os.environ["{_VARIABLE}"] = "set by its import"
warnings.filterwarnings("ignore", message="heavy")
from zt_ahead_heavy import inner
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of installed packages, in a process like that of a stub."""
    home = tmp_path / "site-packages"
    write(home / "zt_ahead_heavy" / "__init__.py", _HEAVY)
    write(home / "zt_ahead_heavy" / "inner.py", "import zt_ahead_leaf\nCOUNT = []\n")
    write(home / "zt_ahead_leaf.py", "")
    write(home / "zt_ahead_user.py", "import zt_ahead_heavy.inner\nwith_heavy = zt_ahead_heavy\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(home)])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(warnings, "filters", [*warnings.filters])
    monkeypatch.setenv(_VARIABLE, "")
    monkeypatch.delenv(_VARIABLE)
    yield home
    for name in seen():
        del sys.modules[name]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def seen() -> list[str]:
    return sorted(name for name in sys.modules if name.startswith(_OURS))


def store_with(*packages: tuple[str, ...]) -> Store:
    store = Store()
    sys.meta_path.insert(0, store)
    for names in packages:
        store.import_ahead(names)
    return store


@pytest.mark.usefixtures("packages")
def test_a_model_sees_nothing_until_it_imports_the_package_and_then_everything() -> None:
    before = list(warnings.filters)
    store = store_with(("zt_ahead_heavy", "zt_ahead_heavy.inner"))
    made = store.modules["zt_ahead_heavy"]
    assert ([], before, None) == (seen(), list(warnings.filters), os.environ.get(_VARIABLE))

    heavy = importlib.import_module("zt_ahead_heavy")

    assert made is heavy
    assert ["zt_ahead_heavy", "zt_ahead_heavy.inner", "zt_ahead_leaf"] == seen()
    assert "set by its import" == os.environ[_VARIABLE]
    assert 1 == len([*warnings.filters]) - len(before)
    assert heavy.__spec__.loader is not store


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("first", ["zt_ahead_heavy.inner", "zt_ahead_user"])
def test_a_module_brings_along_what_its_import_needed(first: str) -> None:
    store_with(("zt_ahead_heavy", "zt_ahead_heavy.inner"), ("zt_ahead_user",))
    assert [] == seen()

    importlib.import_module(first)

    assert {"zt_ahead_heavy", "zt_ahead_leaf"} <= {*seen()}
    assert "set by its import" == os.environ[_VARIABLE]


@pytest.mark.usefixtures("packages")
def test_the_import_of_one_package_does_not_bring_along_another() -> None:
    store_with(("zt_ahead_leaf",), ("zt_ahead_heavy",))

    importlib.import_module("zt_ahead_leaf")

    assert (["zt_ahead_leaf"], None) == (seen(), os.environ.get(_VARIABLE))


def test_a_model_s_own_module_of_the_same_name_comes_first_if_its_path_does(
    packages: Path, tmp_path: Path
) -> None:
    store_with(("zt_ahead_leaf",))
    write(tmp_path / "model" / "zt_ahead_leaf.py", "OWN = True\n")
    sys.path.insert(0, str(tmp_path / "model"))

    assert importlib.import_module("zt_ahead_leaf").OWN


@pytest.mark.usefixtures("packages")
def test_a_module_that_a_model_imports_again_runs_again() -> None:
    store_with(("zt_ahead_leaf",))
    first = importlib.import_module("zt_ahead_leaf")
    del sys.modules["zt_ahead_leaf"]

    assert importlib.import_module("zt_ahead_leaf") is not first


def test_what_cannot_be_imported_fails_in_the_model(packages: Path) -> None:
    write(packages / "zt_ahead_broken.py", "raise RuntimeError('no licence')\n")
    store = Store()
    sys.meta_path.insert(0, store)

    store.import_ahead(["zt_ahead_broken", "zt_ahead_leaf"])

    assert ["zt_ahead_leaf"] == list(store.modules)
    with pytest.raises(RuntimeError, match="no licence"):
        importlib.import_module("zt_ahead_broken")


def test_modules_of_the_library_and_of_packages_that_were_there_stay(packages: Path) -> None:
    write(packages / "zt_ahead_parts" / "one.py", "")
    write(packages / "zt_ahead_parts" / "two.py", "import zt_ahead_parts.one, wave\n")
    importlib.import_module("zt_ahead_parts.one")  # a namespace package, and some of it
    sys.modules.pop("wave", None)

    store = store_with(("zt_ahead_parts.two", "zt_ahead_leaf"))

    assert ["zt_ahead_leaf"] == list(store.modules)
    assert {"zt_ahead_parts.two", "wave"} <= sys.modules.keys()


@pytest.mark.usefixtures("packages")
def test_a_load_reports_modules_of_packages_and_nothing_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "zt_ahead_own.py", "import zt_ahead_leaf\n")
    sys.path.append(str(tmp_path))
    monkeypatch.setattr(imports, "_AT_START", frozenset(sys.modules))

    importlib.import_module("zt_ahead_own")

    assert ["zt_ahead_leaf"] == imports.installed_modules()
