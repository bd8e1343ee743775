"""`python -m tools.touches_extras [BASE]`: whether a change can touch the extras; .ci/run asks.

It can if a file of the extras has changed, a file that all tests use, or a file that the extras,
their tests or the sdk import. A package includes all modules in it. Prints these files; the exit
status is 1 without any. Without BASE, the change is since the branch has left main.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.repo.sources import PATH_ROOTS, Source, imported, tree_of
from tests.support.needs import ROOT

EXTRAS = "extras/"
SDK = "zmqtriton/sdk/"
#: Files and folders that count for all tests.
_OF_ALL = (EXTRAS, SDK, ".ci/", "Makefile", "conftest.py", "pyproject.toml", "setup.cfg")
_MAIN = ("origin/main", "main")


def reached() -> set[str]:
    """Return the files and folders that extras, their tests and the sdk import, from the root."""
    paths = [*(ROOT / EXTRAS).rglob("*.py"), *(ROOT / SDK).rglob("*.py")]
    names = {name for path in paths for name in _imports(path)}
    return {place for name in names for place in _places(name)}


def _imports(path: Path) -> Iterator[str]:
    try:
        tree = tree_of(path)
    except SyntaxError:  # an example of what is refused
        return
    for _, name in imported(Source(_module_of(path), path, tree)):
        yield name


def _module_of(path: Path) -> str:
    root = next(root for root in PATH_ROOTS if path.is_relative_to(root))
    return ".".join(path.relative_to(root).with_suffix("").parts)


def _places(name: str) -> Iterator[str]:
    """Yield the file of a module, or the folder of a package; the last word may be a name in it."""
    for words in (name.split("."), name.split(".")[:-1]):
        for root in PATH_ROOTS:
            place = root.joinpath(*words)
            if words and place.with_suffix(".py").is_file():
                yield f"{place.with_suffix('.py').relative_to(ROOT)}"
            elif len(words) > 1 and (place / "__init__.py").is_file():
                yield f"{place.relative_to(ROOT)}/"


def touching(changed: Iterable[str]) -> list[str]:
    """Return the changed files that can touch extras."""
    places = (*_OF_ALL, *reached())
    return [path for path in changed if path.startswith(places)]


def changed_since(base: str) -> list[str]:
    """Return the files that differ from a commit; raises CalledProcessError if it is unknown."""
    return _git("diff", "--name-only", base).splitlines()


def _fork() -> str:
    """Return the commit where this branch has left main; on main, the previous commit."""
    for main in _MAIN:
        answer = subprocess.run(
            ["git", "merge-base", "HEAD", main], cwd=ROOT, capture_output=True, text=True
        )
        if not answer.returncode:
            base = answer.stdout.strip()
            return base if base != _git("rev-parse", "HEAD").strip() else "HEAD^1"
    return "HEAD^1"


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def main(words: list[str]) -> int:
    try:
        changed = changed_since(words[0] if words else _fork())
    except subprocess.CalledProcessError as error:
        print(f"the change is not known, so it counts: {error.stderr.strip()}")
        return 0
    counted = touching(changed)
    print("\n".join(counted) or f"none of {len(changed)} changed files can touch the extras")
    return not counted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
