"""Looks into a Python file before it is served, without running it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from zmqtriton.config import ConfigError, parse_text, read_text
from zmqtriton.repository import find_config
from zmqtriton_addons.tools.checking.sources import SourceFact, check_sources
from zmqtriton_floor.errors import ZmqTritonError

_CLASS = "TritonPythonModel"
_AUTO_COMPLETE = b"auto_complete_config"
_NEW = "'zmqtriton new NAME' writes a model to begin with"


def check_file(path: Path) -> str:
    """Return why the file cannot be served, as a sentence; "" if nothing is known against it."""
    if not path.is_file():
        return f"there is no file {path}; {_NEW}"
    if path.suffix != ".py":
        return f"{path} is no Python file: its name does not end with .py"
    if path.stem in sys.stdlib_module_names:
        return f"{path} has the name of a module of Python, '{path.stem}'; give it another one"
    for fact in check_sources([path])[path]:
        if fact.kind in ("syntax", "problem"):
            return _sentence(path, fact)
    if find_config(path.parent) is None and _AUTO_COMPLETE not in path.read_bytes():
        return (
            f"{path} does not say what its inputs and outputs are: it needs the method "
            f"auto_complete_config, or a config.pbtxt beside it; {_NEW}"
        )
    return ""


def _sentence(path: Path, fact: SourceFact) -> str:
    where = f"{path}:{fact.line}" if fact.line else f"{path}"
    if fact.kind == "problem" and _CLASS in fact.text:
        meant = fact.text.partition("; ")[2]
        return f"{where}: there is no class {_CLASS}; {meant or _NEW}"
    return f"{where}: {fact.text}"


def configured_name(path: Path) -> str:
    """Return the name in the configuration beside the file, or ""."""
    config_path = find_config(path.parent)
    try:
        text = read_text(config_path) if config_path is not None else ""
        return str(parse_text(text, os.fspath(config_path or ""), may_have_more=True).name)
    except (ConfigError, ZmqTritonError):
        return ""  # the load says what is wrong with it
