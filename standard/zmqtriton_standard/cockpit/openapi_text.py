"""Texts of the description of the API: a summary of each responder, and the form of its bodies.

A responder that is missing here is described by its name only, which a test does not let pass.
"""

from __future__ import annotations

from typing import Any

from zmqtriton.sdk.frontend import extension
from zmqtriton.sdk.wire import datatypes


def _answers(summary: str, response: str, request: str = "", **more: Any) -> extension.Operation:
    return extension.Operation(summary, request, response, "application/json", **more)


_HTML = "text/html"
_NUMBER = {"type": "number"}

#: Descriptions of the HTTP operations, by the qualified name of their responder.
OPERATIONS = {
    "Metadata.live": extension.Operation("Whether the server is alive: 200, or no answer"),
    "Metadata.ready": extension.Operation("Whether all models can execute: 200, else 400"),
    "Metadata.model_ready": extension.Operation("Whether a model can execute: 200, else 400"),
    "Metadata.server": _answers("Name, version and extensions of the server", "Server"),
    "Metadata.model": _answers("Versions, inputs and outputs of a model", "Model"),
    "Metadata.config": _answers("The complete configuration of a model", "Configuration"),
    "Metadata.statistics": _answers(
        "Counts and durations since the model was loaded", "Statistics"
    ),
    "Metadata.server_load": _answers("How busy the server is, and each model in it", "ServerLoad"),
    "Metadata.model_load": _answers("How busy a model is", "Load"),
    "RepositoryResponders.index": _answers(
        "All models of the repository with their states",
        "Index",
        "IndexRequest",
        is_body_required=False,
    ),
    "RepositoryResponders.load": extension.Operation(
        "Load a model, or load it anew", "LoadRequest", is_body_required=False
    ),
    "RepositoryResponders.unload": extension.Operation(
        "Unload a model", "UnloadRequest", is_body_required=False
    ),
    "RepositoryResponders.named_repository": extension.Operation(
        "Answers 501: repositories have no names"
    ),
    "Operations.scale": _answers("How many instances each version of a model has", "Scale"),
    "Operations.change_scale": _answers(
        "Give a model another number of instances while it serves", "Scale", "ScaleRequest"
    ),
    "Operations.canary": _answers("The current or last canary of a model", "Canary"),
    "Operations.change_canary": _answers(
        "Try a version of a model beside the one that serves, or change how",
        "Canary",
        "CanaryRequest",
    ),
    "Operations.promote_canary": _answers("Let the canary serve all requests", "Canary"),
    "Operations.abort_canary": _answers(
        "Let the stable version serve all requests again", "Canary"
    ),
    "Operations.restart": _answers(
        "Restart the processes of a model; the requests that they execute fail", "Restarted"
    ),
    "Operations.drain_state": _answers("The progress of the drain, or its outcome", "DrainState"),
    "Operations.drain": _answers(
        "Send clients elsewhere; answered when no request is in progress any more",
        "DrainState",
        "DrainRequest",
        is_body_required=False,
    ),
    "Operations.undrain": _answers(
        "End the drain: it is ready again", "DrainState", "UndrainRequest", is_body_required=False
    ),
    "Status.status": _answers("The server, its processes and models, and why any failed", "Status"),
    "Status.history": _answers(
        "Rates, latencies, queues and memory of the last hour, a sample every 5 seconds",
        "History",
        query={"seconds": _NUMBER, "model": extension.STRING},
    ),
    "Status.logs": _answers(
        "The last lines of the log, of all or of a model",
        "Log",
        query={
            "model": extension.STRING,
            **{name: _NUMBER for name in ("lines", "since", "after")},
        },
    ),
    "AsgiInferences.infer": _answers(
        "Run a model; tensors may also be binary, after the JSON", "InferResponse", "InferRequest"
    ),
    "Generate.generate": _answers(
        "Run a model with flat JSON, or bytes for its one such input; exactly one response",
        "Generated",
        "GenerateRequest",
    ),
    "Generate.generate_stream": extension.Operation(
        "Run a model with flat JSON, or bytes for its one such input; responses as events (SSE)",
        "GenerateRequest",
        media="text/event-stream",
    ),
    "InferStream.infer_stream": extension.Operation(
        "Run a model; responses with names and shapes as server-sent events, as they come",
        "InferRequest",
        media="text/event-stream",
    ),
    "SettingsResponders.log": _answers("The settings of the log", "Settings"),
    "SettingsResponders.change_log": _answers(
        "Change the settings of the log", "Settings", "Settings"
    ),
    "SettingsResponders.trace": _answers("The settings of traces", "Settings"),
    "SettingsResponders.change_trace": _answers(
        "Change the settings of traces", "Settings", "Settings"
    ),
    "RegionResponders.status": _answers(
        "The regions of shared memory that are registered", "Regions"
    ),
    "RegionResponders.register": extension.Operation(
        "Register a region of shared memory", "RegisterRequest"
    ),
    "RegionResponders.register_nameless": extension.Operation("Answers 400: a region needs a name"),
    "RegionResponders.unregister": extension.Operation(
        "Forget one region of shared memory, or all"
    ),
    "Description.document": _answers("This description", "Description"),
    "Pages.front": extension.Operation(
        "A page for browsers, for others where to look", media=_HTML
    ),
    "Pages.docs": extension.Operation("This description as a page", media=_HTML),
    "Pages.asset": extension.Operation("What the pages load", media="text/plain"),
}


_SCALARS = {"type": ["string", "number", "boolean"]}
_PARAMETERS = {"type": "object", "additionalProperties": _SCALARS}
_DATATYPE = {"type": "string", "enum": [datatype.name for datatype in datatypes.DATATYPES]}
_DATA = {**extension.array_of({}), "description": "Elements in row-major order, nested or flat."}
_TENSOR = {
    "name": extension.STRING,
    "datatype": _DATATYPE,
    "shape": extension.array_of(extension.COUNT),
    "data": _DATA,
}
_LOAD = {
    **{"name": extension.STRING, "version": extension.STRING, "ready": extension.BOOLEAN},
    **{key: extension.COUNT for key in ("queued", "executing", "unanswered", "limit")},
    "instances": extension.object_of({"ready": extension.COUNT, "all": extension.COUNT}),
    **{key: _NUMBER for key in ("utilization", "mean_queue_ms", "mean_compute_ms")},
}
_DURATION = extension.object_of({"count": extension.COUNT, "ns": extension.COUNT}, "count", "ns")

SCHEMAS: dict[str, Any] = {
    "Error": extension.object_of({"error": extension.STRING}, "error"),
    "Server": extension.object_of(
        {
            "name": extension.STRING,
            "version": extension.STRING,
            "extensions": extension.array_of(extension.STRING),
        },
        "name",
        "version",
    ),
    "TensorMetadata": extension.object_of(
        {
            "name": extension.STRING,
            "datatype": _DATATYPE,
            "shape": extension.array_of({"type": "integer"}),
        },
        "name",
        "datatype",
        "shape",
    ),
    "Model": extension.object_of(
        {
            "name": extension.STRING,
            "versions": extension.array_of(extension.STRING),
            "platform": extension.STRING,
            "inputs": extension.array_of(extension.schema_named("TensorMetadata")),
            "outputs": extension.array_of(extension.schema_named("TensorMetadata")),
        },
        "name",
        "versions",
        "platform",
        "inputs",
        "outputs",
    ),
    "Configuration": {"type": "object", "description": "ModelConfig of Triton, as JSON."},
    "Duration": _DURATION,
    "ModelStatistics": extension.object_of(
        {
            "name": extension.STRING,
            "version": extension.STRING,
            "last_inference": {**extension.COUNT, "description": "Milliseconds since 1970."},
            "inference_count": extension.COUNT,
            "execution_count": extension.COUNT,
            "inference_stats": {
                "type": "object",
                "additionalProperties": extension.schema_named("Duration"),
            },
        },
        "name",
        "version",
        "inference_count",
        "execution_count",
        "inference_stats",
    ),
    "Statistics": extension.object_of(
        {"model_stats": extension.array_of(extension.schema_named("ModelStatistics"))},
        "model_stats",
    ),
    "IndexRequest": extension.object_of(
        {"ready": {**extension.BOOLEAN, "description": "Only those that are ready."}}
    ),
    "Index": extension.array_of(
        extension.object_of(
            {
                "name": extension.STRING,
                "version": extension.STRING,
                "state": extension.STRING,
                "reason": extension.STRING,
            },
            "name",
        )
    ),
    "LoadRequest": extension.object_of(
        {"parameters": extension.object_of({"config": extension.STRING})}
    ),
    "UnloadRequest": extension.object_of(
        {"parameters": extension.object_of({"unload_dependents": extension.BOOLEAN})}
    ),
    "Load": extension.object_of(_LOAD),
    "ServerLoad": extension.object_of(
        {**_LOAD, "models": extension.array_of(extension.schema_named("Load"))}
    ),
    "DrainRequest": extension.object_of(
        {
            "instance": extension.STRING,
            "then": {"type": "string", "enum": ["nothing", "unload", "restart", "stop"]},
            **{key: _NUMBER for key in ("within_s", "quiet_s")},
            "wait": extension.BOOLEAN,
        }
    ),
    "UndrainRequest": extension.object_of({"instance": extension.STRING}),
    "DrainState": extension.object_of(
        {
            **{key: extension.STRING for key in ("model", "instance", "state", "then")},
            "under_way": {"type": ["integer", "null"]},
            "seconds": _NUMBER,
            "is_late": extension.BOOLEAN,
        }
    ),
    "ScaleRequest": extension.object_of(
        {"count": extension.COUNT, "group": extension.STRING}, "count"
    ),
    "Scale": extension.object_of(
        {
            "model": extension.STRING,
            "versions": {
                "type": "object",
                "additionalProperties": extension.object_of(
                    {"instances": extension.COUNT, "ready": extension.COUNT}
                ),
            },
            "autoscale": extension.object_of(
                {
                    "least": extension.COUNT,
                    "most": extension.COUNT,
                    "last_change": extension.STRING,
                    "obstacle": extension.STRING,
                }
            ),
        }
    ),
    "Restarted": extension.object_of(
        {"model": extension.STRING, "ended": extension.COUNT}, "model", "ended"
    ),
    "Status": extension.object_of(
        {
            "server": extension.object_of(
                {"id": extension.STRING, "version": extension.STRING, "ready": extension.STRING}
            ),
            **{name: extension.array_of({"type": "object"}) for name in ("processes", "models")},
            "environments": extension.array_of(extension.schema_named("Preparation")),
        },
        "server",
        "processes",
        "models",
        "environments",
    ),
    "Preparation": extension.object_of(
        {
            **{name: extension.STRING for name in ("model", "step")},
            "progress": {
                "type": ["number", "null"],
                "description": "Between 0 and 1; null: nobody knows how much there is to do.",
            },
            "seconds": {**_NUMBER, "description": "The time since it was begun."},
        },
        "model",
        "step",
        "progress",
        "seconds",
    ),
    "Columns": {
        "type": "object",
        "additionalProperties": extension.array_of({"type": ["number", "null"]}),
        "description": "A column for each figure, a value for each time; null: no value.",
    },
    "History": extension.object_of(
        {
            "interval_s": _NUMBER,
            "times": {**extension.array_of(_NUMBER), "description": "Seconds since 1970."},
            "server": extension.schema_named("Columns"),
            "models": {"type": "object", "additionalProperties": extension.schema_named("Columns")},
            "models_left_out": extension.COUNT,
        },
        "interval_s",
        "times",
        "server",
        "models",
    ),
    "Log": extension.object_of(
        {
            "lines": extension.array_of(
                extension.object_of(
                    {
                        **{name: extension.COUNT for name in ("number", "pid", "line")},
                        "time_s": _NUMBER,
                        **{
                            name: extension.STRING
                            for name in ("level", "file", "model", "instance", "text")
                        },
                    }
                )
            ),
            "last": extension.COUNT,
            "lost": extension.COUNT,
            **{name: _NUMBER for name in ("begins_s", "started_s")},
        },
        "lines",
        "last",
        "lost",
    ),
    "CanaryRequest": extension.object_of(
        {
            "version": extension.COUNT,
            **{name: _NUMBER for name in ("weight", "shadow", "tolerance", "min_requests")},
            **{
                name: {}
                for name in (
                    "abort_failures",
                    "abort_latency",
                    "abort_hang",
                    "abort_within",
                    "promote_after",
                )
            },
            **{name: extension.STRING for name in ("header", "sticky", "latency")},
        }
    ),
    "Canary": extension.object_of(
        {
            "model": extension.STRING,
            "phase": extension.STRING,
            "stable": extension.COUNT,
            "canary": extension.COUNT,
            "weight": _NUMBER,
            "reason": extension.STRING,
        }
    ),
    "InferRequest": extension.object_of(
        {
            "id": extension.STRING,
            "parameters": _PARAMETERS,
            "inputs": extension.array_of(
                extension.object_of(
                    {**_TENSOR, "parameters": _PARAMETERS}, "name", "datatype", "shape"
                )
            ),
            "outputs": extension.array_of(
                extension.object_of({"name": extension.STRING, "parameters": _PARAMETERS}, "name")
            ),
        },
        "inputs",
    ),
    "InferResponse": extension.object_of(
        {
            "id": extension.STRING,
            "model_name": extension.STRING,
            "model_version": extension.STRING,
            "parameters": _PARAMETERS,
            "outputs": extension.array_of(
                extension.object_of(_TENSOR, "name", "datatype", "shape")
            ),
        },
        "model_name",
        "model_version",
        "outputs",
    ),
    "GenerateRequest": {
        "type": "object",
        "description": "Inputs by their names; all other keys are parameters of the request.",
    },
    "Generated": {
        "type": "object",
        "properties": {"model_name": extension.STRING, "model_version": extension.STRING},
        "description": "Outputs by their names, with the name and the version of the model.",
    },
    "RegisterRequest": extension.object_of(
        {
            "key": {
                **extension.STRING,
                "description": "Name of the shared memory, as shm_open takes it.",
            },
            "offset": extension.COUNT,
            "byte_size": extension.COUNT,
        },
        "byte_size",
    ),
    "Regions": extension.array_of(
        extension.object_of(
            {
                "name": extension.STRING,
                "key": extension.STRING,
                "offset": extension.COUNT,
                "byte_size": extension.COUNT,
            },
            "name",
        )
    ),
    "Settings": {"type": "object", "description": "Settings by their names."},
    "Description": {"type": "object", "description": "OpenAPI 3.1."},
}
