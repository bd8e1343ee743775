"""Records in an object store: segments as in a directory, each written as a whole."""

from __future__ import annotations

import secrets
import time
from collections import Counter

import orjson

from zmqtriton.sdk.wire import ZmqTritonError
from zmqtriton_extras.capture.process.assembly import Capture
from zmqtriton_extras.capture.process.segments import document_of
from zmqtriton_extras.capture.process.writer import Lost
from zmqtriton_extras.capture.records import LINES
from zmqtriton_extras.storage.places import parse_bucket_url
from zmqtriton_extras.storage.stores import ObjectStore

#: A segment is in memory until it is as large, or as old.
_SEGMENT_BYTES = 8 << 20
_SEGMENT_S = 10.0


class Bucket:
    """Writes records to a bucket; used by one thread."""

    def __init__(self, url: str) -> None:
        """Set up without connecting. Raises InvalidArgument."""
        self._store = ObjectStore(parse_bucket_url(url))
        # equal values have equal hashes as long as this process lives
        self._key = secrets.token_bytes(32)
        self._begin()

    def _begin(self) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        self._segment = f"{stamp}-{secrets.token_hex(3)}"
        self._begun_s = time.monotonic()
        self._files: list[tuple[str, bytes]] = []
        self._lines: list[bytes] = []
        self._bytes = 0
        self._models: Counter[str] = Counter()

    def open(self) -> None:
        """Do nothing: a bucket exists already."""

    def write(self, capture: Capture) -> Counter[str]:
        """Add a record, and write the segment if it is large. Raises Lost."""
        if not self._lines:
            self._begin()
        name = f"{self._segment}-{len(self._lines) + 1}"
        document, files = document_of(capture, name, lambda: self._key)
        self._lines.append(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
        self._files += files
        self._bytes += len(self._lines[-1]) + sum(len(content) for _, content in files)
        self._models[document["model"]] += 1
        return self._write_all() if self._bytes >= _SEGMENT_BYTES else self.rest()

    def rest(self) -> Counter[str]:
        """Write the segment if it is old. Raises Lost."""
        is_old = time.monotonic() - self._begun_s >= _SEGMENT_S
        return self._write_all() if self._lines and is_old else Counter()

    def close(self) -> Counter[str]:
        """Write the last segment. Raises Lost."""
        return self._write_all()

    def _write_all(self) -> Counter[str]:
        """Write files before lines, so that every readable line has its files."""
        lines, files, models = b"".join(self._lines), self._files, self._models
        segment = self._segment
        self._begin()
        try:
            for name, content in (*files, *([(LINES, lines)] if lines else [])):
                self._store.put(f"{segment}/{name}", content)
        except ZmqTritonError as error:
            raise Lost(models, error.text) from None
        return models
