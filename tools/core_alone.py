"""`python -m tools.core_alone`: the core's quick tests in a copy of the tree that has no add-ons.

An import or a test of the core that needs an add-on fails there.

`python -m tools.core_alone without NAME …` runs all other quick tests, for each named extra in a
copy without it and the add-ons that need it; `without all` uses a copy without extras. A test
outside of an extra that needs it has the mark `extra("NAME")`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from zmqtriton import addons

ROOT = Path(__file__).resolve().parent.parent
#: One stands where scripts import it.
ADD_ONS = ("standard", "extras", "zmqtriton/embedded")
#: Where the tests of add-ons lie, room by room. Single ones in files of the core have the mark
#: `addons`.
ADD_ON_TESTS = ("tests/standard", "tests/embedded")
#: Read by each Python that is started with the copy's path: an installation that refers to the
#: original tree would lend its add-ons.
EXTRAS = "extras/zmqtriton_extras"
#: Names the extras that a copy lacks, for tests that need them.
LEFT_OUT = "ZT_WITHOUT_EXTRAS"
_NO_OTHER_TREE = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if not "__editable__" in getattr(f, "__module__", "")]
sys.path[:] = [p for p in sys.path if "__editable__" not in p]
"""


def copy_but(to: Path, left_out: Sequence[str]) -> None:
    """Copy the files that git knows, as they are in the working tree, except some folders."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    for name in filter(None, names.split("\0")):
        is_left_out = name.startswith(tuple(f"{each}/" for each in left_out))
        if not is_left_out and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def environment_of(copy: Path, site: Path, *more: str) -> dict[str, str]:
    """Return the environment of a Python that finds the packages of the copy and no others."""
    (site / "sitecustomize.py").write_text(_NO_OTHER_TREE)
    own = ("", "stub", "stub/zmqtriton_stub/model_path", "frontends", *more)
    path = (site, *(copy / name for name in own))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}


def command(arguments: list[str]) -> list[str]:
    """Return the command of the quick tests with further options of pytest, which override."""
    quick = ["--quick", "-m", "not system and not triton and not gpu and not addons"]
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *quick, *arguments]


def all_extras() -> list[str]:
    return sorted(path.parent.name for path in (ROOT / EXTRAS).glob("*/__init__.py"))


def with_those_that_need(extras: Sequence[str]) -> list[str]:
    """Return the extras, with all extras that a server leaves out when these are missing."""
    lacking = {*extras}
    declared = [each.declared for each in addons.own_add_ons().values()]
    while more := {each.name for each in declared if lacking & {*each.needs}} - lacking:
        lacking |= more
    return sorted(lacking)


def test_without(names: Sequence[str]) -> int:
    """Run all other quick tests in a copy without these extras; return the exit status."""
    extras = with_those_that_need(names)
    with tempfile.TemporaryDirectory(prefix="zmqtriton-without-") as directory:
        copy, site = Path(directory, "copy"), Path(directory, "site")
        site.mkdir()
        copy_but(copy, [f"{EXTRAS}/{name}" for name in extras])
        for name in ("deploy", "examples"):
            (site / f"zmqtriton_{name}").symlink_to(copy / name)  # as setup.cfg calls them
        environment = environment_of(copy, site, "standard", "extras")
        environment[LEFT_OUT] = " ".join(extras)
        words = ["-n", "auto", "-m", "not system and not triton and not gpu"]
        return subprocess.run(command(words), cwd=copy, env=environment).returncode


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["without"]:
        names = arguments[1:] or all_extras()
        groups = [all_extras()] if names == ["all"] else [[name] for name in names]
        failed = [" ".join(group) for group in groups if test_without(group)]
        if failed:
            print(f"tests fail without: {', '.join(failed)}", file=sys.stderr)
        return len(failed)
    with tempfile.TemporaryDirectory(prefix="zmqtriton-core-") as directory:
        copy, site = Path(directory, "core"), Path(directory, "site")
        copy.mkdir()
        site.mkdir()
        copy_but(copy, (*ADD_ONS, *ADD_ON_TESTS))
        environment = environment_of(copy, site)
        environment[LEFT_OUT] = " ".join(all_extras())
        missing = [sys.executable, "-c", "import zmqtriton_standard"]
        if subprocess.run(missing, cwd=copy, env=environment, capture_output=True).returncode == 0:
            print("the add-ons are found although the copy has none", file=sys.stderr)
            return 2
        return subprocess.run(command(arguments), cwd=copy, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
