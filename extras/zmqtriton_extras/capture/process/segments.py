"""The directory of records: segments by time, of a limited size each and in all.

A record's document and files are made from frontends' messages, for a bucket as well.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from zmqtriton.sdk.files import check_owner
from zmqtriton.sdk.lines.values import timestamp
from zmqtriton_extras.capture.process.assembly import Capture
from zmqtriton_extras.capture.records import LINES, describe, omitted, write_new

#: A segment ends when it is as large, or as old.
SEGMENT_BYTES = 64 << 20
_SEGMENT_S = 3600.0
#: Minimum number of segments that fit within a small limit.
_FEWEST_SEGMENTS = 4
_KEY_FILE = "hash.key"


def document_of(
    capture: Capture, name: str, hash_key: Callable[[], bytes]
) -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
    """Return the record's document, and its files by name; `hash_key` is called if needed."""
    request, end = capture.request.details, capture.end
    hashed, files = set(request["hashed"]), []

    def entries(part: str, tensors: Any, left_out: list[str]) -> list[dict[str, Any]]:
        rows = []
        for number, tensor in enumerate(tensors):
            key = hash_key() if tensor.name in hashed else b""
            description = describe(tensor, f"{name}-{part}-{number}", key)
            if "file" in description.entry:
                files.append((description.entry["file"], description.file))
            rows.append(description.entry)
        return [*rows, *map(omitted, left_out)]

    model, version = request["model"], request["version"]
    body: dict[str, Any] = {"id": request["request_id"]} if request["request_id"] else {}
    if request["parameters"]:
        body["parameters"] = request["parameters"]
    body["inputs"] = entries("in", capture.request.tensors, request["omitted"])
    if request["outputs"]:
        body["outputs"] = [{"name": output} for output in request["outputs"]]
    responses = []
    for number, frame in enumerate(capture.responses):
        details = frame.details
        response = {"model_name": model, "model_version": str(version)}
        if details["parameters"]:
            response["parameters"] = details["parameters"]
        outputs = entries(f"out{number}", frame.tensors, details["omitted"])
        responses.append({**response, "outputs": outputs, "after_ms": details["after_ms"]})
    error = end["error"]
    document = {
        "id": name,
        "time": timestamp(request["time_s"]),
        "model": model,
        "version": version,
        "decoupled": request["is_decoupled"],
        "token": request["token"],
        "request": body,
        "responses": responses,
        "error": None if error is None else {"code": error[0], "text": error[1]},
        "duration_ms": end["duration_ms"],
        "stages_ms": {name: ns / 1e6 for name, ns in end["stages"].items()},
    }
    return document, files


class Segments:
    """Writes records to a directory; used by one thread."""

    def __init__(self, directory: Path, limit: int) -> None:
        """Set up; `limit` is the size of all segments together, 0 for no limit."""
        self._directory = directory
        self._limit = limit
        # all but the last can go
        self._segment_limit = min(SEGMENT_BYTES, limit // _FEWEST_SEGMENTS or SEGMENT_BYTES)
        self._segment: Path | None = None
        self._segment_bytes = 0
        self._begun_s = 0.0
        self._count = 0
        #: The file of lines of the segment, and its size.
        self._lines = -1
        self._lines_bytes = 0
        #: The sizes of the segments before, the oldest first.
        self._earlier: dict[Path, int] = {}
        self._key = b""

    def open(self) -> None:
        """Make the directory, or use an existing one. Raises OSError."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_owner(self._directory)
        for path in sorted(self._directory.glob(f"*/{LINES}")):
            self._earlier[path.parent] = _size_of(path.parent)

    def _hash_key(self) -> bytes:
        """Return the key of hashes, made with the first; only with it can values be guessed."""
        if not self._key:
            path = self._directory / _KEY_FILE
            with suppress(FileExistsError):
                write_new(path, secrets.token_bytes(32))
            self._key = path.read_bytes()
        return self._key

    def write(self, capture: Capture) -> Counter[str]:
        """Write a record; its line comes last, so a record that can be read is complete.

        Returns the number of kept records by model. Raises OSError, and removes the incomplete
        record.
        """
        segment = self._current()
        self._count += 1
        name = f"{segment.name}-{self._count}"
        files: list[Path] = []
        written = 0
        try:
            document, contents = document_of(capture, name, self._hash_key)
            for stem, data in contents:
                files.append(segment / stem)
                write_new(files[-1], data)
                written += len(data)
            line = orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
            self._append(line)
        except BaseException:
            for file in files:
                with suppress(OSError):
                    file.unlink()
            raise
        self._segment_bytes += written + len(line)
        self._remove_oldest()
        return Counter([document["model"]])

    def rest(self) -> Counter[str]:
        """Do nothing: each record is on disk already."""
        return Counter()

    def _current(self) -> Path:
        now_s = time.time()
        segment = self._segment
        is_full = self._segment_bytes >= self._segment_limit
        is_over = is_full or now_s - self._begun_s >= _SEGMENT_S
        if segment is None or is_over or not segment.exists():
            if segment is not None:
                self._earlier[segment] = self._segment_bytes
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now_s))
            segment = self._directory / f"{stamp}-{secrets.token_hex(3)}"
            segment.mkdir(mode=0o700, parents=True)
            self._open_lines(segment / LINES)
            self._segment, self._segment_bytes = segment, 0
            self._begun_s, self._count = now_s, 0
        return segment

    def close(self) -> Counter[str]:
        if self._lines >= 0:
            os.close(self._lines)
            self._lines = -1
        return Counter()

    def _open_lines(self, path: Path) -> None:
        self.close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._lines = os.open(path, flags, 0o600)
        self._lines_bytes = 0

    def _append(self, line: bytes) -> None:
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self._lines, view) :]
        except OSError:
            os.ftruncate(self._lines, self._lines_bytes)  # of a disk that is full
            raise
        self._lines_bytes += len(line)

    def _remove_oldest(self) -> None:
        total = self._segment_bytes + sum(self._earlier.values())
        while self._limit and total > self._limit and self._earlier:
            oldest = next(iter(self._earlier))
            total -= self._earlier.pop(oldest)
            shutil.rmtree(oldest, ignore_errors=True)


def _size_of(segment: Path) -> int:
    return sum(path.stat().st_size for path in segment.iterdir())
