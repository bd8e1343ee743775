"""The description of the routes of jobs, for /openapi.json."""

from __future__ import annotations

from zmqtriton_frontends.http_api import (
    COUNT,
    STRING,
    Operation,
    RouteDescriptions,
    array_of,
    object_of,
    schema_named,
)

_JSON = "application/json"

DESCRIPTIONS = RouteDescriptions(
    operations={
        "JobRoutes.list_all": Operation("The newest jobs of the client's token", "", "Jobs", _JSON),
        "JobRoutes.show": Operation(
            "State of a job; with the outputs once it has succeeded", "", "Job", _JSON
        ),
        "JobRoutes.result": Operation("The answer of a job, as the model's route would give it"),
        "JobRoutes.responses": Operation(
            "The responses of a stream so far, from the place `after` on", "", "Responses", _JSON
        ),
        "JobRoutes.delete": Operation("Cancel a job, or remove one that has ended"),
    },
    schemas={
        "Job": object_of(
            {
                "id": STRING,
                "path": STRING,
                "state": {
                    "type": "string",
                    "enum": ["queued", "running", "succeeded", "failed", "cancelled"],
                },
                "place": COUNT,
                "progress": {"type": "number"},
                "status": COUNT,
                "reason": STRING,
                "result": STRING,
                "response": {},
                "webhook": object_of(
                    {
                        "url": STRING,
                        "state": {
                            "type": "string",
                            "enum": ["pending", "sending", "delivered", "failed"],
                        },
                        "tries": COUNT,
                        "next": {"type": "number"},
                        "problem": STRING,
                    },
                    "url",
                    "state",
                    "tries",
                ),
            },
            "id",
            "path",
            "state",
        ),
        "Responses": object_of(
            {
                "state": STRING,
                "tries": COUNT,
                "next": COUNT,
                "responses": array_of({}),
            },
            "state",
            "tries",
            "next",
            "responses",
        ),
        "Jobs": object_of({"jobs": array_of(schema_named("Job"))}, "jobs"),
    },
)
