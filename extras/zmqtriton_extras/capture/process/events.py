"""Records posted as CloudEvents, as KServe's logger does: one for a request, one per response.

Their data are bodies of the V2 protocol, with its binary extension for tensors that JSON cannot
carry.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from zmqtriton.sdk.lines.values import timestamp
from zmqtriton.sdk.wire import datatypes, wire
from zmqtriton_extras.capture.process.assembly import Capture
from zmqtriton_extras.capture.process.writer import Lost
from zmqtriton_extras.capture.records import hash_of, json_values
from zmqtriton_standard.tracing.posting import Poster, PostError

_TYPE = "org.kubeflow.serving.inference."
_WITHIN_S = 10.0


class Posted:
    """Posts records to a URL; used by one thread."""

    def __init__(self, url: str) -> None:
        self._post = Poster(url, {}, None)
        self._key = secrets.token_bytes(32)
        self._host = socket.gethostname()

    def open(self) -> None:
        """Do nothing: each record has a connection of its own."""

    def write(self, capture: Capture) -> Counter[str]:
        """Post a record. Raises Lost."""
        models = Counter([capture.request.details["model"]])
        try:
            for headers, body in self._events(capture):
                self._post(body, _WITHIN_S, headers)
        except PostError as error:
            raise Lost(models, f"events cannot be posted: {error}") from None
        return models

    def rest(self) -> Counter[str]:
        """Do nothing: each record is sent at once."""
        return Counter()

    def close(self) -> Counter[str]:
        """Do nothing: there is no segment to write."""
        return Counter()

    def _events(self, capture: Capture) -> Iterator[tuple[dict[str, str], bytes]]:
        """Yield headers and body of each event."""
        request, end = capture.request.details, capture.end
        model, version = request["model"], str(request["version"])
        headers = {
            "ce-specversion": "1.0",
            "ce-id": secrets.token_hex(16),
            "ce-source": f"http://{self._host}/v2/models/{model}/versions/{version}",
            "ce-time": timestamp(request["time_s"]),
            "ce-inferenceservicename": model,
        }
        of_request: dict[str, Any] = {
            "id": request["request_id"],
            "parameters": request["parameters"],
            "outputs": [{"name": output} for output in request["outputs"]],
        }
        yield self._event(
            headers, "request", of_request, "inputs", capture.request.tensors, request["hashed"]
        )
        head = {"id": request["request_id"], "model_name": model, "model_version": version}
        for frame in capture.responses:
            answer = {**head, "parameters": frame.details["parameters"]}
            yield self._event(
                headers, "response", answer, "outputs", frame.tensors, request["hashed"]
            )
        if end["error"] is not None:
            yield self._event(headers, "response", {**head, "error": end["error"][1]})

    def _event(
        self,
        headers: Mapping[str, str],
        kind: str,
        document: Mapping[str, Any],
        part: str = "",
        tensors: Iterable[wire.Tensor] = (),
        hashed: Collection[str] = (),
    ) -> tuple[dict[str, str], bytes]:
        content = {key: value for key, value in document.items() if value}
        parts = []
        if part:
            content[part] = rows = []
            for tensor in tensors:
                entry, data = self._entry(tensor, is_hashed=tensor.name in hashed)
                rows.append(entry)
                parts.append(data)
        head = json.dumps(content).encode()
        headers = {**headers, "ce-type": f"{_TYPE}{kind}", "Content-Type": "application/json"}
        if any(parts):
            headers["Content-Type"] = "application/octet-stream"
            headers["Inference-Header-Content-Length"] = str(len(head))
        return headers, b"".join((head, *parts))

    def _entry(self, tensor: wire.Tensor, *, is_hashed: bool) -> tuple[dict[str, Any], bytes]:
        """Return a tensor's JSON entry, and its bytes if they are not in the entry."""
        entry: dict[str, Any] = {
            "name": tensor.name,
            "datatype": datatypes.BY_NUMBER[tensor.datatype].name,
            "shape": list(tensor.shape),
        }
        if tensor.data is None:
            return {**entry, "parameters": {"omitted": True}}, b""
        if is_hashed:
            return {**entry, "parameters": {"hash": hash_of(tensor.data, self._key)}}, b""
        values = json_values(tensor)
        if values is not None:
            return {**entry, "data": values}, b""
        data = bytes(tensor.data)
        return {**entry, "parameters": {"binary_data_size": len(data)}}, data
