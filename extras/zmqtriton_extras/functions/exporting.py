"""`zmqtriton export`: writes functions as models that NVIDIA Triton can serve.

Each model has its configuration, its file, the modules of the project that the file imports, and a
copy of the backend, which needs only numpy.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from zmqtriton.sdk.models import api, model, pbtxt, scan
from zmqtriton.sdk.wire import InvalidArgument, ZmqTritonError, documents, wire
from zmqtriton_extras.functions.imports import Imports
from zmqtriton_extras.functions.sources import models_in

_MODEL_FILE, _CONFIG_FILE = "model.py", "config.pbtxt"
#: New name of a function's file if its name is model.py.
_FUNCTION_FILE = "function.py"
#: The package of the copied backend, and its subpackage for modules of the server.
_PACKAGE, _FLOOR = "zmqtriton_extras.functions.backend", "floor"
#: The modules of the server that the backend needs.
_COPIED = ("sdk", "lazy_names", "documents", "descriptions")
_CODE = '''"""Written by `zmqtriton export`: the model of the function in {file}."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from zmqtriton_extras.functions.backend.model import FunctionModel


class TritonPythonModel(FunctionModel):
    file = os.path.join(HERE, "{file}")
'''


def run_export(words: list[str]) -> int:
    """Run `zmqtriton export` and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="zmqtriton export",
        description="Write each function of FILE as a model below DIRECTORY, for any Triton.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="a Python file with functions")
    parser.add_argument("directory", metavar="DIRECTORY", type=Path, help="a model repository")
    arguments = parser.parse_args(words)
    try:
        file: Path = arguments.file.absolute()
        names, imports = models_in(file), Imports(file)
        for name in names:
            export(file, name, arguments.directory / name, imports)
            sys.stdout.write(f"{arguments.directory / name}\n")
    except (OSError, ZmqTritonError, api.TritonModelException) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if not names:
        sys.stderr.write(f"error: {arguments.file} has no function with @model of zmqtriton\n")
    elif packages := imports.packages:
        sys.stdout.write(f"needed where it is served: pip install {' '.join(packages)}\n")
    return 0 if names else 1


def config_of(file: Path, name: str) -> Any:
    """Return the config.pbtxt next to a file, or an empty one, for one function on Triton."""
    beside = scan.find_config(file.parent)
    config = pbtxt.read_config(beside) if beside else pbtxt.parse_text("")
    config.name, config.backend, config.default_model_filename = name, "python", ""
    return config


def export(file: Path, name: str, directory: Path, imports: Imports) -> None:
    """Write the function with this name as a model into a directory.

    Raises FileExistsError if it is there, and InvalidArgument if it cannot be copied as it is.
    """
    if _MODEL_FILE in imports.modules:
        raise InvalidArgument(
            f"{file} imports {_MODEL_FILE}, the name of the file for Triton: rename the module"
        )
    model.provide_api()
    # only now: it needs the API of models
    from zmqtriton_extras.functions.backend.model import TritonPythonModel

    config = config_of(file, name)
    place, code = str(directory), str(file)
    load = wire.LoadModel(name, name, 1, "CPU", 0, place, code, pbtxt.to_json(config), 1)
    completed = model.PythonModel(load, type(name, (TritonPythonModel,), {"file": code})).complete()
    version = directory / "1"
    version.mkdir(parents=True)
    (directory / _CONFIG_FILE).write_text(pbtxt.to_text(pbtxt.parse_json(completed)), "utf-8")
    target = _FUNCTION_FILE if file.name == _MODEL_FILE else file.name
    for place, module in {**imports.modules, target: file}.items():
        (version / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(module, version / place)
    (version / _MODEL_FILE).write_text(_CODE.format(file=target), "utf-8")
    _copy_backend(version / "zmqtriton_extras" / "functions")


def _copy_backend(directory: Path) -> None:
    own = Path(__file__).parent
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(own / "backend", directory / "backend", ignore=leave_out)
    for package in (directory, directory.parent, directory / "backend" / _FLOOR):
        package.mkdir(exist_ok=True)
        (package / "__init__.py").write_text("", "utf-8")
    floor = Path(documents.__file__).parent
    for name in _COPIED:
        shutil.copy(floor / f"{name}.py", directory / "backend" / _FLOOR)
    for file in directory.rglob("*.py"):
        text = file.read_text("utf-8")
        file.write_text(text.replace("zmqtriton_floor", f"{_PACKAGE}.{_FLOOR}"), "utf-8")
