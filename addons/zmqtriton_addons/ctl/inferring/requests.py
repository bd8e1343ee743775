"""One request to a model, made from values of the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import click

from zmqtriton_addons.ctl.http_service import HttpService
from zmqtriton_floor.errors import InvalidArgument

HEADER_LENGTH = "Inference-Header-Content-Length"


class PreparedRequest(NamedTuple):
    """The JSON of a request, and the bytes of its tensors."""

    document: dict[str, Any]
    #: A piece for each input; none if the values are in the document.
    pieces: tuple[bytes, ...]

    def encode(self) -> tuple[bytes, dict[str, str]]:
        """Return the body for HTTP, and its headers."""
        binary = {"parameters": {"binary_data_output": True, **self.document.get("parameters", {})}}
        head = json.dumps({**self.document, **binary}).encode()
        headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(head))}
        return head + b"".join(self.pieces), headers


def model_path(model: str, version: int | None) -> str:
    return f"/v2/models/{quote(model, safe='')}" + (f"/versions/{version}" if version else "")


def read_json(file: str) -> Any:
    try:
        with click.open_file(file, encoding="utf-8") as source:
            return json.load(source)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"--json {file} cannot be read: {error}") from None


def prepare(
    service: HttpService, path: str, words: Sequence[str], document: Any, fill: str
) -> PreparedRequest:
    """Make a request; `fill` says with what to fill inputs that are not given, "" for nothing.

    The model's metadata has the types and shapes. Raises InvalidArgument.
    """
    # only now: the other commands do without numpy
    from zmqtriton_addons.ctl.inferring import values

    if isinstance(document, dict) and isinstance(document.get("inputs"), list):
        if words or fill:
            raise InvalidArgument("--json has a whole request, so no other inputs can be given")
        return PreparedRequest(document, ())
    metadata = service.request(path).json()
    infos = [values.TensorInfo.from_metadata(entry) for entry in metadata["inputs"]]
    arrays = {} if document is None else values.read_document(document, infos)
    if words or fill or document is None:
        arrays = {**values.read_inputs(words, infos, fill=fill), **arrays}
    pieces, entries = [], []
    for info in infos:
        if info.name in arrays:
            pieces.append(values.encode(arrays[info.name], info.datatype))
            entries.append(
                {
                    "name": info.name,
                    "datatype": info.datatype.name,
                    "shape": list(arrays[info.name].shape),
                    "parameters": {"binary_data_size": len(pieces[-1])},
                }
            )
    return PreparedRequest({"inputs": entries}, tuple(pieces))
