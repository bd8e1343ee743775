"""The description of the routes of files and batches, for /openapi.json."""

from __future__ import annotations

from typing import Any

from zmqtriton_frontends.http_api import (
    BOOLEAN,
    COUNT,
    STRING,
    Operation,
    RouteDescriptions,
    array_of,
    object_of,
    schema_named,
)

_JSON = "application/json"
_METADATA: dict[str, Any] = {"type": "object", "additionalProperties": STRING}


def _list_of(name: str) -> dict[str, Any]:
    return object_of(
        {
            "object": STRING,
            "data": array_of(schema_named(name)),
            "first_id": STRING,
            "last_id": STRING,
            "has_more": BOOLEAN,
        },
        "object",
        "data",
        "has_more",
    )


DESCRIPTIONS = RouteDescriptions(
    operations={
        "FileRoutes.create": Operation(
            "Keep a file of requests: a form with `purpose`, which is `batch`, and `file`",
            "",
            "OpenAIFile",
            _JSON,
        ),
        "FileRoutes.list_all": Operation(
            "The files of the client's token: `purpose`, `limit`, `order`, `after`",
            "",
            "OpenAIFiles",
            _JSON,
        ),
        "FileRoutes.show": Operation("One file", "", "OpenAIFile", _JSON),
        "FileRoutes.content": Operation("What the file contains"),
        "FileRoutes.delete": Operation("Remove a file"),
        "BatchRoutes.create": Operation(
            "Execute each line of a file", "BatchRequest", "OpenAIBatch", _JSON
        ),
        "BatchRoutes.list_all": Operation(
            "The batches of the client's token, the newest first: `limit`, `after`",
            "",
            "OpenAIBatches",
            _JSON,
        ),
        "BatchRoutes.show": Operation("One batch", "", "OpenAIBatch", _JSON),
        "BatchRoutes.cancel": Operation(
            "Cancel a batch; what its lines have answered is kept", "", "OpenAIBatch", _JSON
        ),
    },
    schemas={
        "OpenAIFile": object_of(
            {
                "id": STRING,
                "object": STRING,
                "bytes": COUNT,
                "created_at": COUNT,
                "expires_at": COUNT,
                "filename": STRING,
                "purpose": STRING,
                "status": STRING,
            },
            "id",
            "object",
            "bytes",
            "created_at",
            "filename",
            "purpose",
            "status",
        ),
        "OpenAIFiles": _list_of("OpenAIFile"),
        "BatchRequest": object_of(
            {
                "input_file_id": STRING,
                "endpoint": STRING,
                "completion_window": STRING,
                "metadata": _METADATA,
            },
            "input_file_id",
            "endpoint",
            "completion_window",
        ),
        "OpenAIBatch": object_of(
            {
                "id": STRING,
                "object": STRING,
                "endpoint": STRING,
                "input_file_id": STRING,
                "completion_window": STRING,
                "status": STRING,
                "errors": {},
                "output_file_id": {"type": ["string", "null"]},
                "error_file_id": {"type": ["string", "null"]},
                "request_counts": object_of(
                    {"total": COUNT, "completed": COUNT, "failed": COUNT},
                    "total",
                    "completed",
                    "failed",
                ),
                "metadata": {},
            },
            "id",
            "object",
            "endpoint",
            "input_file_id",
            "completion_window",
            "status",
        ),
        "OpenAIBatches": _list_of("OpenAIBatch"),
    },
)
