"""The package of a backend: imported by its name from where the backend lies, and nothing else."""

from __future__ import annotations

import json.decoder
import sys
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_floor import wire
from zmqtriton_stub.api import errors
from zmqtriton_stub.api.errors import describe
from zmqtriton_stub.model import import_class

FILES = {
    "stranger_of_test.py": "",
    "addon_of_test/__init__.py": "",
    "addon_of_test/shared.py": """
import json
import triton_python_backend_utils as pb_utils
NAME = __name__
def complain():
    raise pb_utils.TritonModelException("no such file")
def fail():
    raise ValueError("not foreseen")
def read():
    json.loads("no JSON")
""",
    "addon_of_test/one/__init__.py": "",
    "addon_of_test/one/inner.py": "NAME = __name__",
    "addon_of_test/one/model.py": """
from addon_of_test import shared
from addon_of_test.one import inner
class TritonPythonModel:
    names = shared.NAME, inner.NAME, __name__
    complain, fail, read = shared.complain, shared.fail, shared.read
""",
}


@pytest.fixture(autouse=True)
def nothing_stays(nothing_imported: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    monkeypatch.setattr(errors, "_BACKENDS", set())


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory of packages, which is not on the path."""
    for name, text in FILES.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "site"


def load(path: Path, package: str = "addon_of_test.one") -> Any:
    place = ("/repository/m", str(path))
    return import_class(wire.LoadModel("m_0_0", "m", 1, "CPU", 0, *place, "{}", 0, package=package))


def test_a_backend_imports_its_package_by_its_name(site: Path) -> None:
    model = load(site / "addon_of_test" / "one" / "model.py")

    assert ("addon_of_test.shared", "addon_of_test.one.inner", "model") == model.names


def test_what_lies_beside_the_package_is_not_on_the_path(site: Path) -> None:
    load(site / "addon_of_test" / "one" / "model.py")

    with pytest.raises(ModuleNotFoundError):
        __import__("stranger_of_test")
    assert str(site) not in sys.path


def test_another_edition_in_the_environment_is_passed_over(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "environment"
    (other / "addon_of_test").mkdir(parents=True)
    (other / "addon_of_test" / "__init__.py").touch()
    monkeypatch.syspath_prepend(other)

    load(site / "addon_of_test" / "one" / "model.py")

    assert str(site / "addon_of_test") == next(iter(sys.modules["addon_of_test"].__path__))


def test_a_package_of_one_name_is_provided_alone(site: Path) -> None:
    own = site / "lonely_of_test"
    own.mkdir()
    (own / "inner.py").write_text("")
    (own / "model.py").write_text(
        "import lonely_of_test.inner\nclass TritonPythonModel: loaded = True\n"
    )

    assert load(own / "model.py", "lonely_of_test").loaded


@pytest.mark.parametrize("package", ["", "addon_of_test.two", "elsewhere.one"])
def test_a_package_whose_files_lie_elsewhere_is_the_environment_s(site: Path, package: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="addon_of_test"):
        load(site / "addon_of_test" / "one" / "model.py", package)


def test_frames_of_the_package_are_shown_only_if_there_are_no_others(site: Path) -> None:
    model = load(site / "addon_of_test" / "one" / "model.py")

    def described(call: Any) -> str:
        with pytest.raises(Exception) as error:  # noqa: PT011 - the text is looked at
            call()
        traceback = error.value.__traceback__
        assert traceback is not None
        return describe(error.value.with_traceback(traceback.tb_next))  # none of this function

    shared = site / "addon_of_test" / "shared.py"
    assert "no such file" == described(model.complain)
    assert f"ValueError: not foreseen\n\nAt:\n  {shared}(8): fail\n" == described(model.fail)
    text = described(model.read)
    assert f"{json.decoder.__file__}(" in text
    assert str(shared) not in text
