"""A wheel has no tests, and files for the names of `zmqtriton` that add-ons have; else: setup.cfg.

What runs is the add-on's module, which a checkout finds by the declarations alone. The files are
for type checkers and editors, which find no module without one.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

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

    setup(cmdclass={"build_py": BuildModules})
