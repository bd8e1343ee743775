"""Records as their files have them, made of what frontends have sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqtriton_addons.capture.frames import timestamp
from zmqtriton_addons.capture.process.assembly import Capture
from zmqtriton_addons.capture.records import describe, file_name, omitted


def document_of(
    capture: Capture, name: str, hash_key: Callable[[], bytes]
) -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
    """Return the record's document, and its files by name; the key is asked for if it is needed."""
    request, end = capture.request.details, capture.end
    hashed, files = set(request["hashed"]), []

    def entries(part: str, tensors: Any, left_out: list[str]) -> list[dict[str, Any]]:
        rows = []
        for number, tensor in enumerate(tensors):
            stem = f"{name}-{part}-{number}-{file_name(tensor.name)}"
            key = hash_key() if tensor.name in hashed else b""
            description = describe(tensor, stem, key)
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
