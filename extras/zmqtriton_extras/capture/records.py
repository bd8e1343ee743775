"""Records on disk: a line of JSON for each, with large tensors in files.

A record has the request and the responses as KServe's V2 protocol writes them. Instead of `"data"`
it has `"file"` for a tensor in a file (`.npy`, or `.bin` with the bytes of the protocol's binary
extension), `"hash"` for a hashed tensor, and `"omitted"` for a tensor that was not captured.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zmqtriton.sdk.wire import InvalidArgument, datatypes, tensors, wire

#: The file of a segment that has its records.
LINES = "requests.jsonl"
#: Up to this size a tensor stands in its record's line.
INLINE_BYTES = 4096
_HASH_BYTES = 16


class Record(NamedTuple):
    """One request with its responses, and the segment that has it."""

    document: dict[str, Any]
    segment: Path

    @property
    def id(self) -> str:
        return str(self.document["id"])

    @property
    def model(self) -> str:
        return str(self.document["model"])

    @property
    def has_failed(self) -> bool:
        return self.document["error"] is not None

    @property
    def is_whole(self) -> bool:
        """True if the request can be sent again: no input was left out."""
        return all(not _MISSING & entry.keys() for entry in self.document["request"]["inputs"])

    def files(self) -> list[str]:
        """Return the names of the files with the record's tensors."""
        document = self.document
        bodies = (document["request"]["inputs"], *(r["outputs"] for r in document["responses"]))
        return [Path(entry["file"]).name for body in bodies for entry in body if "file" in entry]

    def array(self, entry: dict[str, Any]) -> Any:
        """Return a tensor of the record as a numpy array. Raises InvalidArgument without its data.

        Datatypes that numpy lacks become arrays of their bits.
        """
        if "data" not in entry and "file" not in entry:
            raise InvalidArgument(f"'{entry['name']}' was not captured; --capture records it again")
        try:
            return self._array(entry)
        except Exception as error:  # noqa: BLE001 - a damaged file may claim any size and form
            raise InvalidArgument(
                f"'{entry['name']}' of {self.id} cannot be read; use another record: "
                f"{error or type(error).__name__}"
            ) from None

    def _array(self, entry: dict[str, Any]) -> Any:
        datatype, shape = datatypes.BY_NAME[entry["datatype"]], entry["shape"]
        if "data" in entry:
            if datatype.number == datatypes.BYTES:
                return np.array([text.encode() for text in entry["data"]], object).reshape(shape)
            return np.array(entry["data"], datatype.numpy).reshape(shape)
        path = self.segment / Path(entry["file"]).name
        if path.suffix == ".npy":
            with open(path, "rb") as file:
                return np.lib.format.read_array(file, allow_pickle=False)
        data = path.read_bytes()
        if datatype.number == datatypes.BYTES:
            return tensors.to_numpy(datatypes.BYTES, shape, data)
        return np.frombuffer(data, datatype.numpy_bits).reshape(shape)


_MISSING = {"hash", "omitted"}


def read(directory: Path) -> Iterator[Record]:
    """Iterate over the records of a directory, of one segment or of several, in their order.

    Incomplete lines, such as one that is being written or that a full disk has cut, are left out.
    """
    several = [path.parent for path in sorted(directory.glob(f"*/{LINES}"))]
    for segment in [directory] if (directory / LINES).exists() else several:
        with open(segment / LINES, encoding="utf-8") as file:
            for line in file:
                with suppress(ValueError):
                    document = json.loads(line)
                    if _is_record(document):
                        yield Record(document, segment)


def _is_record(document: Any) -> bool:
    """Return whether a document has all fields that readers need; damaged ones are left out."""
    try:
        error, bodies = document["error"], [document["request"]["inputs"]]
        bodies += [response["outputs"] for response in document["responses"]]
        names = [entry["name"] for body in bodies for entry in body]
        texts = [*names, document["id"], document["model"], document.get("time", "")]
        texts += [] if error is None else [error["code"], error["text"]]
        float(document.get("duration_ms", 0))
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    return all(type(text) is str for text in texts)


class Description(NamedTuple):
    """A tensor's entry in a record, and its file if it has one."""

    entry: dict[str, Any]
    file: bytes = b""


def describe(tensor: wire.Tensor, prefix: str, key: bytes = b"") -> Description:
    """Describe a tensor; `prefix` begins its file's name, and with a key it is hashed."""
    datatype = datatypes.BY_NUMBER[tensor.datatype]
    entry = {"name": tensor.name, "datatype": datatype.name, "shape": list(tensor.shape)}
    data = tensor.data
    if data is None:
        # the stub has written it to a client's memory
        return Description({**entry, "omitted": True})
    if key:
        return Description({**entry, "hash": hash_of(data, key)})
    if len(data) <= INLINE_BYTES:
        values = json_values(tensor)
        if values is not None:
            return Description({**entry, "data": values})
    stem = f"{prefix}-{file_name(tensor.name)}"
    if not datatype.numpy_name or datatype.number == datatypes.BYTES:
        return Description({**entry, "file": f"{stem}.bin"}, bytes(data))
    file = io.BytesIO()
    np.save(file, tensors.to_numpy(tensor.datatype, tensor.shape, data), allow_pickle=False)
    return Description({**entry, "file": f"{stem}.npy"}, file.getvalue())


def hash_of(data: Any, key: bytes) -> str:
    """Return the hash that a record has instead of a tensor's data."""
    return blake2b(data, key=key, digest_size=_HASH_BYTES).hexdigest()


def omitted(name: str) -> dict[str, Any]:
    """Return the entry of a tensor that was not captured."""
    return {"name": name, "omitted": True}


def v2_request(record: Record) -> tuple[bytes, list[tuple[Path, int]]]:
    """Return the JSON of the request for HTTP, and the binary data after it.

    The data are parts of files: a path, and the number of bytes at its end. Raises InvalidArgument
    if the request was not captured completely.
    """
    request = record.document["request"]
    inputs, parts = [], []
    for entry in request["inputs"]:
        if "data" in entry:
            inputs.append(entry)
            continue
        array = record.array(entry)
        path = record.segment / Path(entry["file"]).name
        size = path.stat().st_size if path.suffix == ".bin" else array.nbytes
        parts.append((path, size))
        shown = {key: entry[key] for key in ("name", "datatype", "shape")}
        inputs.append({**shown, "parameters": {"binary_data_size": size}})
    return json.dumps({**request, "inputs": inputs}).encode(), parts


def file_name(text: str) -> str:
    """Return a valid file name for a tensor, whose name its model has chosen."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in text)
    return safe[:64]


def write_new(path: Path, data: bytes) -> None:
    """Write a file that only the server's user may read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)


def json_values(tensor: wire.Tensor) -> list[Any] | None:
    """Return the elements for JSON; None if JSON cannot represent them exactly."""
    if tensor.datatype == datatypes.BYTES:
        try:
            return [element.decode() for element in tensors.decode_bytes(tensor.data)]
        except ValueError:
            return None
    datatype = datatypes.BY_NUMBER[tensor.datatype]
    if not datatype.json_kind:
        return None
    values: list[Any] = np.frombuffer(tensor.data, datatype.numpy).tolist()
    if datatype.json_kind == "number" and not all(map(math.isfinite, values)):
        return None
    return values
