"""The place of a model: its directory in a repository, or a single file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from zmqtriton.repository.scan import ScannedModel, scan_model
from zmqtriton.repository.single_file import scan_single_file


class ModelPlace(NamedTuple):
    """The files of a model, before they are looked at."""

    directory: Path
    repository: Path
    #: The model, if it is this file alone.
    code_file: Path | None = None

    def scan(self, name: str, config_name: str = "") -> ScannedModel:
        """Scan the model as it is now. Raises if it vanishes meanwhile."""
        if self.code_file is not None:
            return scan_single_file(name, self.code_file, config_name)
        return scan_model(self.directory, self.repository, config_name)


def place_of_file(file: Path) -> ModelPlace:
    return ModelPlace(file.parent, file.parent, file)
