"""The files of a server's certificate, and whether they are other ones now.

Asked by the HTTP and gRPC frontends, which take a renewed certificate without a restart. The
supervisor has looked at the files before it started anything.
"""

from __future__ import annotations

import os
from typing import Any


class Certificates:
    """Paths, as a birth's settings say them for this service."""

    def __init__(self, settings: dict[str, Any], service: str) -> None:
        self.cert: str = settings[f"{service}_server_cert"]
        self.key: str = settings[f"{service}_server_key"]
        #: Signs clients' certificates; "": they need none.
        self.root: str = ""
        if settings[f"{service}_use_ssl_mutual"]:
            self.root = settings[f"{service}_root_cert"]
        self._seen = self._look()

    def have_changed(self) -> bool:
        """Since the last call, or the beginning."""
        before, self._seen = self._seen, self._look()
        return self._seen != before

    def _look(self) -> list[tuple[int, ...]]:
        return [_mark(path) for path in (self.cert, self.key, self.root) if path]


def _mark(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
