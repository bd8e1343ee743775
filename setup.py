"""A wheel has no tests, and types of public names that add-ons have; all else is in setup.cfg."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
STUBS = "zmqtriton-stubs"
ROOTS = [HERE, *(HERE / name for name in ("stub", "frontends", "standard", "extras"))]


class Stub(NamedTuple):
    """A file for type checkers, which say by it what a module below `zmqtriton` has."""

    path: str
    text: str
    #: The module that it stands for; "" of `zmqtriton` itself.
    module: str


def stubs() -> Iterator[Stub]:
    """Yield the files of a package for type checkers, beside which they read `zmqtriton`, too."""
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
            single[place].append(f"from {module} import {attribute} as {last}")
    yield Stub("py.typed", "partial\n", "")
    yield Stub("__init__.pyi", _text([*_own_names(), *single[""]]), "")
    for name, reference in references.items():
        if ":" not in reference:
            for path, module, file in _modules(name, reference):
                lines = [f"from {module} import *"]
                if "\ndef __getattr__" in file.read_text("utf-8"):
                    lines.append(f"from {module} import __getattr__ as __getattr__")
                if module == reference:
                    lines += single[name]
                yield Stub(path, _text(lines), module)


def _own_names() -> Iterator[str]:
    """Yield the imports by which `zmqtriton` itself has names."""
    for node in ast.walk(ast.parse((HERE / "zmqtriton/__init__.py").read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and any(alias.asname for alias in node.names):
            yield ast.unparse(node)


def _modules(name: str, reference: str) -> Iterator[tuple[str, str, Path]]:
    """Yield the stub's path, the module and its file, of a module, or of all in a package."""
    [base] = filter(
        lambda path: path.is_dir() or path.with_suffix(".py").is_file(),
        (root.joinpath(*reference.split(".")) for root in ROOTS),
    )
    if not base.is_dir():
        yield f"{name}.pyi", reference, base.with_suffix(".py")
    for file in sorted(base.rglob("*.py")):
        parts = file.relative_to(base).with_suffix("").parts
        if "tests" not in parts and parts[-1] not in ("__main__", "declaration"):
            inside = parts[:-1] if parts[-1] == "__init__" else parts
            yield "/".join((name, *parts)) + ".pyi", ".".join((reference, *inside)), file


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def write_stubs(folder: Path, modules: Container[str] | None = None) -> None:
    """Write `zmqtriton-stubs` into a folder, by default for all modules."""
    for stub in stubs():
        if modules is None or not stub.module or stub.module in modules:
            path = folder / STUBS / stub.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(stub.text, "utf-8")


if __name__ == "__main__":  # the site and packages/client take the stubs alone
    from setuptools import setup
    from setuptools.command.build_py import build_py

    class BuildModules(build_py):
        """Leave out the tests that extras have beside their sources, and write the stubs."""

        def finalize_options(self) -> None:
            super().finalize_options()
            self.packages = [name for name in self.packages or () if "tests" not in name.split(".")]

        def run(self) -> None:
            super().run()
            if not self.editable_mode:
                write_stubs(Path(self.build_lib))

    setup(cmdclass={"build_py": BuildModules})
