"""`python -m tools.core_alone`: the core's quick tests in a copy of the tree that has no add-ons.

What the core imports of an add-on, or a test of the core expects of one, fails there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Two stand where scripts import them.
ADD_ONS = ("standard", "extras", "zmqtriton/embedded", "zmqtriton/pytriton")
#: Where the tests of add-ons lie, room by room. Single ones in files of the core have the mark
#: `addons`.
ADD_ON_TESTS = ("tests/standard", "tests/embedded", "tests/pytriton")
#: Read by each Python that is started with the copy's path: an installation that refers to the
#: original tree would lend its add-ons.
_NO_OTHER_TREE = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if not "__editable__" in getattr(f, "__module__", "")]
sys.path[:] = [p for p in sys.path if "__editable__" not in p]
"""


def copy_core(to: Path) -> None:
    """Copy the files that git knows, as they are in the working tree, without the add-ons'."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    for name in filter(None, names.split("\0")):
        is_add_on = name.startswith(tuple(f"{each}/" for each in (*ADD_ONS, *ADD_ON_TESTS)))
        if not is_add_on and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def core_environment(copy: Path, site: Path) -> dict[str, str]:
    """Return the environment of a Python that finds the packages of the copy and no others."""
    (site / "sitecustomize.py").write_text(_NO_OTHER_TREE)
    own = ("", "stub", "stub/zmqtriton_stub/model_path", "frontends")
    path = (site, *(copy / name for name in own))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}


def command(arguments: list[str]) -> list[str]:
    """Return the quick tests with more options of pytest, of which the last counts."""
    quick = ["--quick", "-m", "not system and not triton and not gpu and not addons"]
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *quick, *arguments]


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="zmqtriton-core-") as directory:
        copy, site = Path(directory, "core"), Path(directory, "site")
        copy.mkdir()
        site.mkdir()
        copy_core(copy)
        environment = core_environment(copy, site)
        missing = [sys.executable, "-c", "import zmqtriton_standard"]
        if subprocess.run(missing, cwd=copy, env=environment, capture_output=True).returncode == 0:
            print("the add-ons are found although the copy has none", file=sys.stderr)
            return 2
        return subprocess.run(command(arguments), cwd=copy, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
