"""A wheel has no tests, public names of add-ons as files, and its build's version; else: setup.cfg.

What runs is the add-on's module, which a checkout finds by the declarations alone. The files are
for type checkers and editors, which find no module without one.

A build of a checkout has the time and the name of its commit behind the version, as in
0.1.0+20260131120000.g0123456789ab: pip compares versions, and installs a later build over an
earlier one. `zmqtriton==0.1.0` means each of them. A release has the version alone.
"""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

#: Digits of a commit, and of the hash of what differs from it, in a build's version.
_COMMIT_DIGITS, _CHANGES_DIGITS = 12, 8
HERE = Path(__file__).resolve().parent
ROOTS = [HERE, *(HERE / name for name in ("stub", "frontends", "standard", "extras"))]
TEXT = '''"""The names of `{module}`, which takes the place of this module."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from {module} import *
{more}else:
    from zmqtriton.public_names import take_place

    take_place(__name__, "{module}")
'''


def build_version(version: str, root: Path) -> str:
    """Return the version of a build of this tree.

    It is the version alone at the tag of that version, and in a tree of which git says nothing:
    there is none, or this is the copy that a release is built from. An sdist has its own.
    """
    if (root / "PKG-INFO").exists():
        lines = (root / "PKG-INFO").read_text("utf-8").splitlines()
        return next(line for line in lines if line.startswith("Version: ")).split()[1]
    try:
        form = "--date=format-local:%Y%m%d%H%M%S", "--format=%cd %h %D"
        moment, commit, *tags = _git(root, "log", "-1", "--decorate-refs=refs/tags", *form).split()
        changes = _git(root, "diff", "--no-ext-diff", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return version
    if changes:
        digest = hashlib.sha256(changes.encode()).hexdigest()
        return f"{version}+{moment}.g{commit}.dirty{digest[:_CHANGES_DIGITS]}"
    is_release = f"v{version}" in [tag.rstrip(",") for tag in tags]
    return version if is_release else f"{version}+{moment}.g{commit}"


def _git(root: Path, *words: str) -> str:
    """Return what git prints about the repository of this tree, whoever owns the files.

    Raises OSError or SubprocessError if the tree has no repository of its own.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    settings = ("safe.directory=*", f"core.abbrev={_COMMIT_DIGITS}", "log.showSignature=false")
    options = [word for setting in settings for word in ("-c", setting)]
    return subprocess.run(
        ["git", *options, f"--git-dir={root / '.git'}", f"--work-tree={root}", *words],
        check=True,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env={**own, "GIT_OPTIONAL_LOCKS": "0", "TZ": "UTC"},
    ).stdout


class Written(NamedTuple):
    """A file below `zmqtriton`."""

    path: str
    text: str
    #: The module that it stands for; "": `zmqtriton` itself.
    module: str = ""


def public_files() -> Iterator[Written]:
    """Yield a file for each module that has a public name, and the types of `zmqtriton`."""
    sys.path[:0] = map(str, ROOTS)
    from zmqtriton import addons

    references = {
        name: each.reference(text)
        for each in addons.own_add_ons().values()
        for name, text in each.declared.public.items()
    }
    single = defaultdict[str, list[str]](list)
    for name, reference in references.items():
        module, _, attribute = reference.partition(":")
        if attribute:
            place, _, last = name.rpartition(".")
            single[place].append(f"from {module} import {attribute} as {last}\n")
    yield Written("__init__.pyi", "".join([*_own_names(), *single[""]]))
    for name, reference in references.items():
        if ":" not in reference:
            for path, module, file in _modules(name, reference):
                more = [*single[name]] if module == reference else []
                if "\ndef __getattr__" in file.read_text("utf-8"):
                    more.append(f"from {module} import __getattr__ as __getattr__\n")
                text = TEXT.format(module=module, more="".join(f"    {line}" for line in more))
                yield Written(path, text, module)


def _own_names() -> Iterator[str]:
    """Yield the imports by which `zmqtriton` itself has names."""
    for node in ast.walk(ast.parse((HERE / "zmqtriton/__init__.py").read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and any(alias.asname for alias in node.names):
            yield f"{ast.unparse(node)}\n"


def _modules(name: str, reference: str) -> Iterator[tuple[str, str, Path]]:
    """Yield path below `zmqtriton`, module and file of a module, or of each in a package."""
    bases = [root.joinpath(*reference.split(".")) for root in ROOTS]
    [base] = [path for path in bases if path.is_dir() or path.with_suffix(".py").is_file()]
    if not base.is_dir():
        yield f"{name}.py", reference, base.with_suffix(".py")
    for file in sorted(base.rglob("*.py")):
        inside = file.relative_to(base)
        if "tests" not in inside.parts and file.stem not in ("__main__", "declaration"):
            parts = inside.with_suffix("").parts
            module = ".".join((reference, *parts)).removesuffix(".__init__")
            yield f"{name}/{inside.as_posix()}", module, file


def write_public(folder: Path, modules: Container[str] | None = None) -> None:
    """Write the files into the folder `zmqtriton`, by default those of all modules."""
    for written in public_files():
        if modules is None or not written.module or written.module in modules:
            path = folder / written.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(written.text, "utf-8")


if __name__ == "__main__":  # the site and packages/client write the files alone
    from setuptools import setup
    from setuptools.command.build_py import build_py

    class BuildModules(build_py):
        """Leave out the tests that extras have beside their sources, and write public names."""

        def finalize_options(self) -> None:
            super().finalize_options()
            self.packages = [name for name in self.packages or () if "tests" not in name.split(".")]

        def run(self) -> None:
            super().run()
            if not self.editable_mode:
                write_public(Path(self.build_lib, "zmqtriton"))

    sys.path.insert(0, str(HERE / "stub"))
    from zmqtriton_floor import __version__

    setup(version=build_version(__version__, HERE), cmdclass={"build_py": BuildModules})
