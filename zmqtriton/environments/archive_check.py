"""Checks an archive of an environment: unpacks it without what its files contain, to look at it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from zmqtriton.environments.demand import check_directory
from zmqtriton.environments.unpack import ArchiveLimits, environment_root, unpack
from zmqtriton.long_steps import StepProgress
from zmqtriton_floor.errors import InternalError


class _Silence:
    """A Reporter for a command that prints findings alone."""

    def log(self, level: str, text: str) -> None:
        pass

    def progress(self, latest: StepProgress) -> None:
        pass


def check_archive(path: str) -> None:
    """Raise the first fault of an archive: what it holds and must not, or what it lacks."""
    # opening must not wait for the writer of a pipe
    with (
        open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file,
        tempfile.TemporaryDirectory(prefix="zmqtriton-check-") as folder,
    ):
        unpack(path, file, Path(folder), _Silence(), ArchiveLimits(), has_contents=False)
        try:
            check_directory(str(environment_root(Path(folder))))
        except InternalError as error:
            raise InternalError(error.text.replace(folder, path)) from error
