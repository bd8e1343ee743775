"""The distribution of tests over processes: a file stays with one, and so do some folders."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

#: Folders whose files share what takes long to make: the syntax trees of all sources, and wheels.
TOGETHER = ("tests/repo/", "tests/releases/")


class FileScheduling(LoadFileScheduling):  # type: ignore[misc]
    """`--dist loadfile`, which gives a process the files of these folders together."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((folder for folder in TOGETHER if file.startswith(folder)), file)
