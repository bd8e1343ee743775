"""Texts of the description of the API: a summary of each responder, and the form of its bodies.

A responder that is missing here is described by its name only, which a test does not let pass.
"""

from __future__ import annotations

from typing import Any

from zmqtriton.sdk.frontend import JsonSchema, Operation
from zmqtriton.sdk.wire import datatypes


def _answers(summary: str, response: str, request: str = "", **more: Any) -> Operation:
    return Operation(summary, request, response, "application/json", **more)


_HTML = "text/html"
_NUMBER = {"type": "number"}

#: Descriptions of the HTTP operations, by the qualified name of their responder.
OPERATIONS = {
    "Metadata.live": Operation("Whether the server is alive: 200, or no answer"),
    "Metadata.ready": Operation("Whether all models can execute: 200, else 400"),
    "Metadata.model_ready": Operation("Whether a model can execute: 200, else 400"),
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
    "RepositoryResponders.load": Operation(
        "Load a model, or load it anew", "LoadRequest", is_body_required=False
    ),
    "RepositoryResponders.unload": Operation(
        "Unload a model", "UnloadRequest", is_body_required=False
    ),
    "RepositoryResponders.named_repository": Operation("Answers 501: repositories have no names"),
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
        query={"seconds": _NUMBER, "model": JsonSchema.STRING},
    ),
    "Status.logs": _answers(
        "The last lines of the log, of all or of a model",
        "Log",
        query={
            "model": JsonSchema.STRING,
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
    "Generate.generate_stream": Operation(
        "Run a model with flat JSON, or bytes for its one such input; responses as events (SSE)",
        "GenerateRequest",
        media="text/event-stream",
    ),
    "InferStream.infer_stream": Operation(
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
    "RegionResponders.register": Operation("Register a region of shared memory", "RegisterRequest"),
    "RegionResponders.register_nameless": Operation("Answers 400: a region needs a name"),
    "RegionResponders.unregister": Operation("Forget one region of shared memory, or all"),
    "Description.document": _answers("This description", "Description"),
    "Pages.front": Operation("A page for browsers, for others where to look", media=_HTML),
    "Pages.docs": Operation("This description as a page", media=_HTML),
    "Pages.asset": Operation("What the pages load", media="text/plain"),
}


_SCALARS = {"type": ["string", "number", "boolean"]}
_PARAMETERS = {"type": "object", "additionalProperties": _SCALARS}
_DATATYPE = {"type": "string", "enum": [datatype.name for datatype in datatypes.BY_NAME.values()]}
_DATA = {
    **JsonSchema.array_of({}),
    "description": "Elements in row-major order, nested or flat.",
}
_TENSOR = {
    "name": JsonSchema.STRING,
    "datatype": _DATATYPE,
    "shape": JsonSchema.array_of(JsonSchema.COUNT),
    "data": _DATA,
}
_LOAD = {
    **{
        "name": JsonSchema.STRING,
        "version": JsonSchema.STRING,
        "ready": JsonSchema.BOOLEAN,
    },
    **{key: JsonSchema.COUNT for key in ("queued", "executing", "unanswered", "limit")},
    "instances": JsonSchema.object_of({"ready": JsonSchema.COUNT, "all": JsonSchema.COUNT}),
    **{key: _NUMBER for key in ("utilization", "mean_queue_ms", "mean_compute_ms")},
}
_DURATION = JsonSchema.object_of({"count": JsonSchema.COUNT, "ns": JsonSchema.COUNT}, "count", "ns")

SCHEMAS: dict[str, Any] = {
    "Error": JsonSchema.object_of({"error": JsonSchema.STRING}, "error"),
    "Server": JsonSchema.object_of(
        {
            "name": JsonSchema.STRING,
            "version": JsonSchema.STRING,
            "extensions": JsonSchema.array_of(JsonSchema.STRING),
        },
        "name",
        "version",
    ),
    "TensorMetadata": JsonSchema.object_of(
        {
            "name": JsonSchema.STRING,
            "datatype": _DATATYPE,
            "shape": JsonSchema.array_of({"type": "integer"}),
        },
        "name",
        "datatype",
        "shape",
    ),
    "Model": JsonSchema.object_of(
        {
            "name": JsonSchema.STRING,
            "versions": JsonSchema.array_of(JsonSchema.STRING),
            "platform": JsonSchema.STRING,
            "inputs": JsonSchema.array_of(JsonSchema.named("TensorMetadata")),
            "outputs": JsonSchema.array_of(JsonSchema.named("TensorMetadata")),
        },
        "name",
        "versions",
        "platform",
        "inputs",
        "outputs",
    ),
    "Configuration": {"type": "object", "description": "ModelConfig of Triton, as JSON."},
    "Duration": _DURATION,
    "ModelStatistics": JsonSchema.object_of(
        {
            "name": JsonSchema.STRING,
            "version": JsonSchema.STRING,
            "last_inference": {**JsonSchema.COUNT, "description": "Milliseconds since 1970."},
            "inference_count": JsonSchema.COUNT,
            "execution_count": JsonSchema.COUNT,
            "inference_stats": {
                "type": "object",
                "additionalProperties": JsonSchema.named("Duration"),
            },
        },
        "name",
        "version",
        "inference_count",
        "execution_count",
        "inference_stats",
    ),
    "Statistics": JsonSchema.object_of(
        {"model_stats": JsonSchema.array_of(JsonSchema.named("ModelStatistics"))},
        "model_stats",
    ),
    "IndexRequest": JsonSchema.object_of(
        {"ready": {**JsonSchema.BOOLEAN, "description": "Only those that are ready."}}
    ),
    "Index": JsonSchema.array_of(
        JsonSchema.object_of(
            {
                "name": JsonSchema.STRING,
                "version": JsonSchema.STRING,
                "state": JsonSchema.STRING,
                "reason": JsonSchema.STRING,
            },
            "name",
        )
    ),
    "LoadRequest": JsonSchema.object_of(
        {"parameters": JsonSchema.object_of({"config": JsonSchema.STRING})}
    ),
    "UnloadRequest": JsonSchema.object_of(
        {"parameters": JsonSchema.object_of({"unload_dependents": JsonSchema.BOOLEAN})}
    ),
    "Load": JsonSchema.object_of(_LOAD),
    "ServerLoad": JsonSchema.object_of(
        {**_LOAD, "models": JsonSchema.array_of(JsonSchema.named("Load"))}
    ),
    "DrainRequest": JsonSchema.object_of(
        {
            "instance": JsonSchema.STRING,
            "then": {"type": "string", "enum": ["nothing", "unload", "restart", "stop"]},
            **{key: _NUMBER for key in ("within_s", "quiet_s")},
            "wait": JsonSchema.BOOLEAN,
        }
    ),
    "UndrainRequest": JsonSchema.object_of({"instance": JsonSchema.STRING}),
    "DrainState": JsonSchema.object_of(
        {
            **{key: JsonSchema.STRING for key in ("model", "instance", "state", "then")},
            "under_way": {"type": ["integer", "null"]},
            "seconds": _NUMBER,
            "is_late": JsonSchema.BOOLEAN,
        }
    ),
    "ScaleRequest": JsonSchema.object_of(
        {"count": JsonSchema.COUNT, "group": JsonSchema.STRING}, "count"
    ),
    "Scale": JsonSchema.object_of(
        {
            "model": JsonSchema.STRING,
            "versions": {
                "type": "object",
                "additionalProperties": JsonSchema.object_of(
                    {"instances": JsonSchema.COUNT, "ready": JsonSchema.COUNT}
                ),
            },
            "autoscale": JsonSchema.object_of(
                {
                    "least": JsonSchema.COUNT,
                    "most": JsonSchema.COUNT,
                    "last_change": JsonSchema.STRING,
                    "obstacle": JsonSchema.STRING,
                }
            ),
        }
    ),
    "Restarted": JsonSchema.object_of(
        {"model": JsonSchema.STRING, "ended": JsonSchema.COUNT}, "model", "ended"
    ),
    "Status": JsonSchema.object_of(
        {
            "server": JsonSchema.object_of(
                {
                    "id": JsonSchema.STRING,
                    "version": JsonSchema.STRING,
                    "ready": JsonSchema.STRING,
                }
            ),
            **{name: JsonSchema.array_of({"type": "object"}) for name in ("processes", "models")},
            "environments": JsonSchema.array_of(JsonSchema.named("Preparation")),
        },
        "server",
        "processes",
        "models",
        "environments",
    ),
    "Preparation": JsonSchema.object_of(
        {
            **{name: JsonSchema.STRING for name in ("model", "step")},
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
        "additionalProperties": JsonSchema.array_of({"type": ["number", "null"]}),
        "description": "A column for each figure, a value for each time; null: no value.",
    },
    "History": JsonSchema.object_of(
        {
            "interval_s": _NUMBER,
            "times": {**JsonSchema.array_of(_NUMBER), "description": "Seconds since 1970."},
            "server": JsonSchema.named("Columns"),
            "models": {"type": "object", "additionalProperties": JsonSchema.named("Columns")},
            "models_left_out": JsonSchema.COUNT,
        },
        "interval_s",
        "times",
        "server",
        "models",
    ),
    "Log": JsonSchema.object_of(
        {
            "lines": JsonSchema.array_of(
                JsonSchema.object_of(
                    {
                        **{name: JsonSchema.COUNT for name in ("number", "pid", "line")},
                        "time_s": _NUMBER,
                        **{
                            name: JsonSchema.STRING
                            for name in ("level", "file", "model", "instance", "text")
                        },
                    }
                )
            ),
            "last": JsonSchema.COUNT,
            "lost": JsonSchema.COUNT,
            **{name: _NUMBER for name in ("begins_s", "started_s")},
        },
        "lines",
        "last",
        "lost",
    ),
    "CanaryRequest": JsonSchema.object_of(
        {
            "version": JsonSchema.COUNT,
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
            **{name: JsonSchema.STRING for name in ("header", "sticky", "latency")},
        }
    ),
    "Canary": JsonSchema.object_of(
        {
            "model": JsonSchema.STRING,
            "phase": JsonSchema.STRING,
            "stable": JsonSchema.COUNT,
            "canary": JsonSchema.COUNT,
            "weight": _NUMBER,
            "reason": JsonSchema.STRING,
        }
    ),
    "InferRequest": JsonSchema.object_of(
        {
            "id": JsonSchema.STRING,
            "parameters": _PARAMETERS,
            "inputs": JsonSchema.array_of(
                JsonSchema.object_of(
                    {**_TENSOR, "parameters": _PARAMETERS}, "name", "datatype", "shape"
                )
            ),
            "outputs": JsonSchema.array_of(
                JsonSchema.object_of({"name": JsonSchema.STRING, "parameters": _PARAMETERS}, "name")
            ),
        },
        "inputs",
    ),
    "InferResponse": JsonSchema.object_of(
        {
            "id": JsonSchema.STRING,
            "model_name": JsonSchema.STRING,
            "model_version": JsonSchema.STRING,
            "parameters": _PARAMETERS,
            "outputs": JsonSchema.array_of(
                JsonSchema.object_of(_TENSOR, "name", "datatype", "shape")
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
        "properties": {
            "model_name": JsonSchema.STRING,
            "model_version": JsonSchema.STRING,
        },
        "description": "Outputs by their names, with the name and the version of the model.",
    },
    "RegisterRequest": JsonSchema.object_of(
        {
            "key": {
                **JsonSchema.STRING,
                "description": "Name of the shared memory, as shm_open takes it.",
            },
            "offset": JsonSchema.COUNT,
            "byte_size": JsonSchema.COUNT,
        },
        "byte_size",
    ),
    "Regions": JsonSchema.array_of(
        JsonSchema.object_of(
            {
                "name": JsonSchema.STRING,
                "key": JsonSchema.STRING,
                "offset": JsonSchema.COUNT,
                "byte_size": JsonSchema.COUNT,
            },
            "name",
        )
    ),
    "Settings": {"type": "object", "description": "Settings by their names."},
    "Description": {"type": "object", "description": "OpenAPI 3.1."},
}
