"""Reads the command line of `zmqtriton run`, and serves the model that it names.

Nothing is copied: the server reads the file, or the directory, where it lies.
"""

from __future__ import annotations

import argparse
import re
import sys
from functools import partial
from pathlib import Path

from zmqtriton.command_line import read_options
from zmqtriton.options import Options
from zmqtriton.repository import find_versions, is_model_directory, subdirectories
from zmqtriton.supervisor import OpenedServer
from zmqtriton_addons.tools.run.guide import guide
from zmqtriton_addons.tools.run.model_file import check_file, configured_name
from zmqtriton_floor.errors import ZmqTritonError

_PYTHON_FILE = "model.py"
_RELOAD = "--reload"
#: Only this machine can connect, unless other addresses are chosen.
ADDRESSES = ("--http-address=127.0.0.1", "--grpc-address=127.0.0.1")
_NAME = re.compile(r"\w[\w.-]*")


class RunError(Exception):
    """Raised if there is no model to serve; the text is for the user of the command."""


def run_model(words: list[str]) -> int:
    """Run the command and return the exit status."""
    arguments, others = _parser().parse_known_args(words)
    try:
        name, of_model = _find_model(arguments.model, arguments.name)
    except (RunError, ZmqTritonError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    words = [*of_model, *_usual_options(name, others), *others]
    options = read_options(words, ADDRESSES)
    if isinstance(options, int):
        return options
    # only now: an error need not load the server
    from zmqtriton.supervisor import run

    return run(options, on_open=partial(_show_guide, name, options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zmqtriton run",
        usage="zmqtriton run MODEL [--name NAME] [--reload] [options of the server]",
        description="Serve one model on 127.0.0.1, without a repository, and print requests to "
        "try. MODEL is a Python file with a TritonPythonModel, or a model's directory. "
        "auto_complete_config of the model, or a config.pbtxt beside the file, names inputs and "
        "outputs. All options of the server may follow; --reload loads the model "
        "again whenever its files are saved.",
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="file or directory")
    parser.add_argument(
        "--name", default="", help="name for a file's model (default: the file's own)"
    )
    return parser


def _find_model(path: Path, name: str) -> tuple[str, list[str]]:
    """Return the name of the model, and the options that have it served. Raises RunError."""
    if path.is_dir():
        path = path.absolute()
        if not (path / _PYTHON_FILE).is_file() or find_versions(path, path.parent, []):
            return _find_directory(path, name)
        path, name = path / _PYTHON_FILE, name or path.name
    if problem := check_file(path):
        raise RunError(problem)
    name = name or configured_name(path) or path.stem
    if not _NAME.fullmatch(name):
        raise RunError(f"'{name}' is no name for a model: it may have letters, digits, _ . and -")
    return name, [f"--model-file={name}={path}"]


def _find_directory(path: Path, name: str) -> tuple[str, list[str]]:
    if not is_model_directory(path, subdirectories(path)):
        raise RunError(
            f"{path} is no model; if it has models in it, "
            f"zmqtriton --model-repository={path} serves them"
        )
    if name not in ("", path.name):
        raise RunError(f"the model in {path} is called '{path.name}'; --name is for files")
    return path.name, [f"--model-repository={path.parent}"]


def _usual_options(name: str, words: list[str]) -> list[str]:
    """Return options for a developer; typed options come later and win."""
    usual: list[str] = []
    typed = {word.partition("=")[0] for word in words}
    if "--model-control-mode" not in typed:
        # the models beside it are there for whoever asks: itself, by BLS
        usual += ["--model-control-mode=explicit", f"--load-model={name}", "--load-on-demand"]
    if _RELOAD in typed:
        # the next save may repair what cannot be loaded now
        usual.append("--exit-on-error=false")
    return usual


def _show_guide(name: str, options: Options, server: OpenedServer) -> None:
    if server.http_port is not None:
        sys.stdout.write(guide(name, options, server.http_port, server.serving_config(name, -1)))
        sys.stdout.flush()
