"""The directory of a server that a script starts: its repository, and its private files."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path

_PREFIX = "pytriton_workspace_"


class Workspace:
    """A directory made here and removed by `clean`; a temporary one also at the end."""

    def __init__(self, workspace_path: str | Path | None = None) -> None:
        """Make the directory, or a new temporary one. Raises OSError.

        For an existing directory raises FileExistsError, because clean() would remove its files.
        """
        if workspace_path is None:
            self._path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            weakref.finalize(self, _remove, self._path, os.getpid())
        else:
            self._path = Path(workspace_path).absolute()
            self._path.mkdir(parents=True)
        self.model_store_path.mkdir()

    @property
    def path(self) -> Path:
        return self._path

    @property
    def model_store_path(self) -> Path:
        """The directory of the models that the server loads at its start."""
        return self._path / "model_store"

    def exists(self) -> bool:
        return self._path.exists()

    def is_empty(self) -> bool:
        """True if the directory has no files except ones made here."""
        return not any(path != self.model_store_path for path in self._path.rglob("*"))

    def clean(self) -> None:
        """Remove the directory with all that is in it."""
        shutil.rmtree(self._path, ignore_errors=True)


def _remove(path: Path, pid: int) -> None:
    """Remove a directory, but not from a fork of the process that has made it."""
    if os.getpid() == pid:
        shutil.rmtree(path, ignore_errors=True)
