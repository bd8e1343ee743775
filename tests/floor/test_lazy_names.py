"""Names that are imported when they are used, and variables that models do not see."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from zmqtriton_floor import withheld as withheld_variables

# -------------------------------------------------------------------------- lazy names
# Names of packages that come from their modules.


PACKAGE = "package_of_lazy_names"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / PACKAGE
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "from zmqtriton_floor.lazy_names import lazy_names\n\n"
        "if TYPE_CHECKING:\n"
        f"    from {PACKAGE} import one as one\n"
        f"    from {PACKAGE}.one import (\n        first as first,\n        second,\n    )\n"
        f"    from {PACKAGE}.two import third as third\n"
        "else:\n"
        "    __getattr__ = lazy_names(__name__)\n"
    )
    (folder / "one.py").write_text("first, second = 1, 2\n")
    (folder / "two.py").write_text("third = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_a_module_is_imported_when_one_of_its_names_is_used(path: Path) -> None:
    package = importlib.import_module(PACKAGE)
    assert f"{PACKAGE}.one" not in sys.modules

    assert 2 == package.second

    assert f"{PACKAGE}.one" in sys.modules
    assert f"{PACKAGE}.two" not in sys.modules


def test_a_name_is_looked_up_once(path: Path) -> None:
    package = importlib.import_module(PACKAGE)
    assert 1 == package.first
    del package.one.first

    assert 1 == package.first


def test_what_a_module_lacks_when_it_is_imported_is_said(path: Path) -> None:
    (path / "two.py").write_text("import signal\nthird = signal.SIGNOTHING\n")

    with pytest.raises(ImportError, match=r"two cannot be imported: .*'SIGNOTHING'") as raised:
        exec(f"from {PACKAGE} import third")

    assert isinstance(raised.value.__cause__, AttributeError)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("import no_such_package", ModuleNotFoundError),
        ("from signal import SIGNOTHING", ImportError),
        ("third = 1 / 0", ZeroDivisionError),
        ("third = (", SyntaxError),
    ],
)
def test_any_other_error_of_a_module_is_the_callers(
    path: Path, line: str, error: type[Exception]
) -> None:
    (path / "two.py").write_text(line)

    with pytest.raises(error) as raised:
        exec(f"from {PACKAGE} import third")

    assert error is raised.type
    assert "third" not in str(raised.value)


def test_a_part_of_the_server_is_told_where_its_clients_alone_are(path: Path) -> None:
    (path / "two.py").write_text("import zmqtriton.no_such_module")

    with pytest.raises(ModuleNotFoundError) as raised:
        exec(f"from {PACKAGE} import third")

    assert "zmqtriton.no_such_module" == raised.value.name
    assert str(raised.value).endswith(f"{PACKAGE}.third is in zmqtriton, not in zmqtriton-client")


def test_modules_are_imported_as_ever_and_other_names_are_missing(path: Path) -> None:
    package = importlib.import_module(PACKAGE)

    assert 3 == importlib.import_module(f"{PACKAGE}.two").third
    with pytest.raises(AttributeError, match=f"module '{PACKAGE}' has no attribute 'fourth'"):
        _ = package.fourth


# ------------------------------------------------------------------ withheld variables
# The hint for a model that asks for a variable which the server withholds.


@pytest.fixture(autouse=True)
def withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(withheld_variables.VARIABLE, json.dumps({"SECRET": "*", "KIND": "KIND"}))


def _hint(place: Mapping[str, str], name: str) -> str:
    with pytest.raises(KeyError) as caught:
        place[name]
    return withheld_variables.hint(caught.value)


@pytest.mark.parametrize(("name", "option"), [("SECRET", "*"), ("KIND", "KIND")])
def test_the_option_that_passes_it_is_named(name: str, option: str) -> None:
    assert f"--model-env={option} passes it" in _hint(os.environ, name)


def test_nothing_is_said_of_other_variables_and_other_dictionaries() -> None:
    assert ("", "") == (_hint(os.environ, "ELSE"), _hint({}, "SECRET"))
    assert "" == withheld_variables.hint(KeyError("SECRET"))
    assert "" == withheld_variables.hint(ValueError("SECRET"))


def test_nothing_is_said_where_nothing_is_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(withheld_variables.VARIABLE)

    assert "" == _hint(os.environ, "SECRET")
