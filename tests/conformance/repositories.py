"""A repository that cases are played against, and how it is written for a server.

Both servers get the same directories and options; the models stand in tests/models, but those that
a table writes itself because they are broken in one line each. tables/__init__.py lists them.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

MODELS = Path(__file__).resolve().parent.parent / "models"


class Model(NamedTuple):
    """A model of tests/models, under a name of its own and with more in its configuration."""

    source: str
    name: str = ""
    config: str = ""


class Written(NamedTuple):
    """A model that exists as text only: its configuration and its files."""

    name: str
    config: str = ""
    files: Mapping[str, str] = {}


class Repository(NamedTuple):
    name: str
    models: Sequence[Model | Written]
    options: Sequence[str]

    def write(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for model in self.models:
            if isinstance(model, Model):
                _copy(model, directory)
            else:
                _write(model, directory)


def _copy(model: Model, directory: Path) -> None:
    target = directory / (model.name or model.source)
    shutil.copytree(MODELS / model.source, target, ignore=shutil.ignore_patterns("__pycache__"))
    with (target / "config.pbtxt").open("a", encoding="utf-8") as config:
        config.write(model.config)


def _write(model: Written, directory: Path) -> None:
    target = directory / model.name
    target.mkdir()
    if model.config:
        (target / "config.pbtxt").write_text(model.config, encoding="utf-8")
    for name, text in model.files.items():
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
