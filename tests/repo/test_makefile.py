"""The Makefile: which environments a target makes anew, and of what."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools import editable_finder, optimized_python


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with an environment that is older than its setup.cfg."""
    (tmp_path / "tools").mkdir()
    for name in ("Makefile", "setup.cfg", "tools/editable_finder.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in (".venv/pyvenv.cfg", ".venv/bin/uv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (0, 0))
    return tmp_path


def commands(checkout: Path, target: str) -> list[str]:
    # `make test` may be what runs this
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", "--dry-run", target],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_no_target_takes_the_environment_of_another(checkout: Path) -> None:
    of_ray = commands(checkout, "test-fleet")
    own = commands(checkout, "quick")

    assert any(" .venv-ray " in line for line in of_ray)
    assert not [line for line in of_ray if line.endswith("--clear .venv")]
    assert [line for line in own if line.endswith("--clear .venv")]


def test_each_tier_has_a_target_and_coverage_has_both() -> None:
    makefile = (ROOT / "Makefile").read_text()

    tiers = {
        target: re.findall(r"pytest -n .*--tier=(\w+)|(?:pytest -n)", recipe)
        for target in ("test", "test-long", "coverage")
        for recipe in re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    }

    assert {"test": ["first"], "test-long": ["long"], "coverage": [""]} == tiers


def test_all_that_must_pass_has_both_tiers() -> None:
    steps = (ROOT / ".ci" / "run").read_text().splitlines()

    assert {"test", "test-long"} <= {line.split()[1] for line in steps if line.startswith("make ")}


def test_an_environment_gets_a_changed_finder(checkout: Path) -> None:
    for second, name in enumerate((".venv/pyvenv.cfg", ".venv/test.stamp"), start=1):
        (checkout / name).touch()
        os.utime(checkout / name, (second, second))
    for path in (checkout / "setup.cfg", checkout / "tools" / "editable_finder.py"):
        os.utime(path, (0, 0))
    finder = ".venv/bin/python tools/editable_finder.py"

    before = commands(checkout, ".venv/test.stamp")
    (checkout / "tools" / "editable_finder.py").touch()
    after = commands(checkout, ".venv/test.stamp")

    assert (False, True) == (finder in before, finder in after)
    assert not [line for line in after if line.endswith("--clear .venv")]


def test_an_optimised_python_of_the_system_is_taken_in_place_of_another_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "bin" / "python{}.{}".format(*sys.version_info)
    system.parent.mkdir()
    monkeypatch.setattr(optimized_python, "SYSTEM", system.parent)
    arguments = "--prefix=/opt"
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: arguments)
    monkeypatch.setattr(sys, "base_prefix", "/opt")

    without = optimized_python.choose()
    system.write_text("#!/bin/sh\nexit 1\n")
    system.chmod(0o755)
    unable = optimized_python.choose()
    system.write_text("#!/bin/sh\n")
    able = optimized_python.choose()
    arguments = "--enable-optimizations"

    assert [sys.executable] * 2 == [without, unable]
    assert str(system) == able
    assert sys.executable == optimized_python.choose(), "it is optimised itself"


def test_the_choice_is_a_program() -> None:
    """Run as the Makefile does, in a Python that has nothing installed."""
    command = [sys.executable, "-S", str(ROOT / "tools" / "optimized_python.py")]

    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    subprocess.run([printed.rstrip("\n"), "-c", "import venv"], check=True)


def test_packages_in_editable_form_are_found_without_other_modules(tmp_path: Path) -> None:
    site, source = tmp_path / "site", tmp_path / "source"
    for name in ("one/__init__.py", "one/data/inner.txt", "files/text.txt"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).touch()
    site.mkdir()
    mapping = {"one": str(source / "one"), "data_alone": str(source / "files")}
    finder = site / f"__editable___{tmp_path.name}_finder.py"
    finder.write_text(f"import pathlib\nMAPPING = {mapping}\n")
    program = f"""
import sys
before = {{*sys.modules}}
import {finder.stem} as finder
finder.install()
import one, one.data, data_alone
print(*sorted({{*sys.modules}} - before), sep=",")
from importlib.resources import files
print(files("data_alone").joinpath("text.txt").is_file())
"""

    rewritten = [editable_finder.rewrite(site), editable_finder.rewrite(site)]

    environment = {"PYTHONPATH": str(site), "PATH": os.defpath}
    command = [sys.executable, "-S", "-c", program]
    printed = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert [[finder], []] == rewritten
    assert [f"{finder.stem},data_alone,one,one.data", "True"] == printed.splitlines()
