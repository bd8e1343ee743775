"""Takes over files that a stub of another user has staged for a load, or that another server has.

A stub owns its directories. Between a check of a file and its opening, the stub could replace it by
a link to a file that only the server may read. So the supervisor links the files into directories
of its own. The stub can still change the content of the files.

The files of a server that is replaced are removed when it ends, so they are copied.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from zmqtriton_floor.errors import InvalidArgument


def take_over(directory: Path) -> None:
    """Replace the directory by one of our own, unless it is one already.

    Raises InvalidArgument if there is anything but files and directories in it, and OSError.
    """
    if directory.lstat().st_uid == os.geteuid():
        return
    ours = directory.with_name(f"{directory.name}-taken")
    try:
        _link_tree(directory, ours)
        shutil.rmtree(directory)
        ours.rename(directory)
    except BaseException:
        shutil.rmtree(ours, ignore_errors=True)
        raise


def _link_tree(source: Path, target: Path) -> None:
    for place, _, files, descriptor in os.fwalk(source, follow_symlinks=False):
        folder = target / os.path.relpath(place, source)
        folder.mkdir()
        folder.chmod(0o755)
        for name in files:
            os.link(name, folder / name, src_dir_fd=descriptor, follow_symlinks=False)
            if not stat.S_ISREG((folder / name).lstat().st_mode):
                raise InvalidArgument(f"the files of a load must be files: '{name}' is not")


def copy_files(source: Path, directory: Path) -> None:
    """Copy the files of another server, unless they were copied already. Raises OSError."""
    if directory.exists():
        return
    unfinished = directory.with_name(f"{directory.name}-copied")
    shutil.rmtree(unfinished, ignore_errors=True)
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    for place, _, files, descriptor in os.fwalk(source, follow_symlinks=False):
        folder = unfinished / os.path.relpath(place, source)
        folder.mkdir()
        folder.chmod(0o755)
        for name in files:
            # not what a link leads to, which perhaps only the server may read
            number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            with open(number, "rb") as file, (folder / name).open("xb") as copy:
                shutil.copyfileobj(file, copy)
            (folder / name).chmod(0o644)
    unfinished.rename(directory)
