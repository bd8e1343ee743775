"""Changed code over kept objects: next to a load of everything, by a process that does both."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.support.server import ROOT

pytestmark = pytest.mark.slow

#: Prints what a fork of the template answers after the edit, or why it keeps nothing.
_PROGRAM = """
import json, os, sys
from zmqtriton_floor import wire
from zmqtriton_stub import keeping, model_code
from zmqtriton_stub.fork_server import freeze
from zmqtriton_stub.model import import_class

def load(version, config):
    place = directory, f"{directory}/{version}/model.py"
    return wire.LoadModel("m_0_0", "m", version, "CPU", 0, *place, config, 0, "", "", "")

directory, version, config = sys.argv[1:]
first = load(1, "{}")
code = model_code.begin((directory,), "")
kept = keeping.Keeping(first, code)
model = import_class(first)
kept.preload(model)
print(json.dumps(model().show()), flush=True)
freeze()
input()
again = load(int(version), config)
try:
    print(json.dumps(kept.renew(again, model_code.begin((directory,), ""))().show()))
except keeping.NotKept as reason:
    print(json.dumps(f"anew: {reason}"))
"""

_HEAD = "import os, pickle, runpy\nhere = os.path.dirname(__file__)\n"


def kept_after(
    directory: Path, code: str, edit: Callable[[], object], version: int = 1, config: str = "{}"
) -> tuple[Any, Any]:
    """Return what a model shows before and after an edit of its files."""
    (directory / "1" / "model.py").write_text(_HEAD + dedent(code))
    command = [sys.executable, "-c", _PROGRAM, str(directory), str(version), config]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "stub")}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        before = json.loads(process.stdout.readline())
        edit()
        return before, json.loads(process.communicate("\n", timeout=60)[0])


def replacing(directory: Path, before: str, after: str) -> Callable[[], object]:
    """Return an edit of a model's file."""

    def edit() -> None:
        file = directory / "1" / "model.py"
        assert before in file.read_text()
        file.write_text(file.read_text().replace(before, after))

    return edit


def model(make: str, show: str = "self.w", above: str = "") -> str:
    return f"""{above}
class TritonPythonModel:
    @classmethod
    def preload(cls, args): cls.w = {make}
    def show(self): return {show}
    def execute(self, requests): return []
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "m" / "1").mkdir(parents=True)
    return tmp_path / "m"


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_link_to_other_data_is_a_change(directory: Path, is_folder: bool) -> None:
    link = directory / "1" / ("data" if is_folder else "w.txt")
    for name in "ab":
        file = directory.parent / name / "w.txt"
        file.parent.mkdir()
        file.write_text(name)
        os.utime(file, (1, 1))

    def lead_to(name: str) -> None:
        target = directory.parent / name
        link.unlink(missing_ok=True)
        link.symlink_to(target if is_folder else target / "w.txt")

    lead_to("a")
    path = "/data/w.txt" if is_folder else "/w.txt"
    shown = kept_after(directory, model(f"open(here + '{path}').read()"), lambda: lead_to("b"))

    assert ("a", f"anew: {path[1:]} changed") == shown


def test_a_file_of_the_version_is_not_one_of_the_same_name_above_it(directory: Path) -> None:
    (directory / "1" / "w.txt").write_text("a")
    (directory / "w.txt").write_text("above")

    shown = kept_after(
        directory,
        model("open(here + '/w.txt').read()"),
        lambda: (directory / "1" / "w.txt").write_text("abc"),
    )

    assert ("a", "anew: w.txt changed") == shown


@pytest.mark.parametrize(
    "make",
    [
        "runpy.run_path(here + '/conf.py')['N']",
        "(lambda names: exec(open(here + '/conf.py').read(), names) or names['N'])({})",
        "load(here + '/conf.py').N",
    ],
)
def test_code_that_is_run_from_a_file_is_compared(directory: Path, make: str) -> None:
    above = """
from importlib.util import module_from_spec, spec_from_file_location
def load(path):
    spec = spec_from_file_location("conf", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""
    (directory / "1" / "conf.py").write_text("N = 'a'")

    shown = kept_after(
        directory,
        model(make, above=above),
        lambda: (directory / "1" / "conf.py").write_text("N = 'b'"),
    )

    assert ("a", "anew: conf.py changed") == shown


@pytest.mark.parametrize("make", ["args.setdefault('model_config', '')", "str(args)"])
def test_each_way_of_reading_an_argument_counts(directory: Path, make: str) -> None:
    _, after = kept_after(directory, model(make), lambda: None, config='{"a": 1}')

    assert "anew: preload reads model_config, which changed" == after


@pytest.mark.parametrize(
    ("make", "show", "above"),
    [
        ("[[{'a': pickle.loads(b'c1.model\\nNet\\n)\\x81.')}]]", "self.w[0][0]['a'].text()", "Net"),
        ("[pickle.loads(b'c1.model\\nsay\\n.')]", "self.w[0]()", "say"),
        ("[cls.own]", "self.w[0]()", "TritonPythonModel"),
    ],
)
def test_objects_of_code_that_is_made_again_do_not_stay(
    directory: Path, make: str, show: str, above: str
) -> None:
    """A pickle has names that no statement mentions."""
    code = "class Net:\n    def text(self): return 'a'\ndef say(): return 'a'"
    more = "    @classmethod\n    def own(cls): return getattr(cls, 'te' + 'xt')()\n"
    whole = model(make, show, code) + more + "    @classmethod\n    def text(cls): return 'a'\n"

    before, after = kept_after(directory, whole, replacing(directory, "'a'\n", "'b'\n"))

    assert "a" == before
    assert f"anew: preload made an object of {above}, which it does not name" == after


@pytest.mark.parametrize(
    ("above", "make"),
    [
        ("import enum\nclass One(enum.Enum): A = 'a'", "One.A"),
        ("from dataclasses import dataclass\n@dataclass\nclass One: value: str", "One('a')"),
    ],
)
def test_classes_that_are_named_stay_the_same_objects(
    directory: Path, above: str, make: str
) -> None:
    show = f"[isinstance(self.w, One), self.w == {make}, self.w.value]"

    shown = kept_after(
        directory, model(make, show, above), replacing(directory, "return []", "return 1")
    )

    assert ([True, True, "a"], [True, True, "a"]) == shown


def test_a_method_below_the_class_of_preload_counts(directory: Path) -> None:
    code = """
class Base:
    @classmethod
    def preload(cls, args): cls.w = cls.make()
class TritonPythonModel(Base):
    @classmethod
    def make(cls): return "a"
    def show(self): return self.w
"""

    before, after = kept_after(directory, code, replacing(directory, '"a"', '"b"'))

    assert "a" == before
    assert "anew: TritonPythonModel.make in model.py changed, and preload uses it" == after


def test_a_class_that_is_made_keeps_nothing(directory: Path) -> None:
    code = """
def preload(args): TritonPythonModel.w = "a"
names = {"preload": staticmethod(preload), "show": lambda self: self.w}
TritonPythonModel = type("TritonPythonModel", (), names)
"""

    _, after = kept_after(directory, code, lambda: None)

    assert "anew: class TritonPythonModel is not at the top level of its file" == after


def test_the_place_of_a_file_is_of_its_version(directory: Path) -> None:
    copy = partial(shutil.copytree, directory / "1", directory / "2")

    _, after = kept_after(directory, model("here"), copy, version=2)

    assert "anew: preload uses the place of its file, which is of another version now" == after


def test_changed_packages_are_imported_again(directory: Path) -> None:
    package = directory.parent / "site-packages" / "weighty.py"
    package.parent.mkdir()
    package.write_text("text = 'a'")
    above = f"import sys\nsys.path.insert(0, {str(package.parent)!r})\nimport weighty"

    shown = kept_after(
        directory, model("weighty.text", above=above), lambda: package.write_text("text = 'longer'")
    )

    assert ("a", "anew: installed packages changed") == shown
