"""Texts of the description of the API: a summary of each responder, and the form of its bodies.

A responder that is missing here is described by its name only, which a test does not let pass.
"""

from __future__ import annotations

from typing import Any

from zmqtriton.sdk.frontend import Operation, Schema
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
        query={"seconds": _NUMBER, "model": Schema.STRING},
    ),
    "Status.logs": _answers(
        "The last lines of the log, of all or of a model",
        "Log",
        query={
            "model": Schema.STRING,
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
    **Schema.array_of({}),
    "description": "Elements in row-major order, nested or flat.",
}
_TENSOR = {
    "name": Schema.STRING,
    "datatype": _DATATYPE,
    "shape": Schema.array_of(Schema.COUNT),
    "data": _DATA,
}
_LOAD = {
    **{
        "name": Schema.STRING,
        "version": Schema.STRING,
        "ready": Schema.BOOLEAN,
    },
    **{key: Schema.COUNT for key in ("queued", "executing", "unanswered", "limit")},
    "instances": Schema.object_of({"ready": Schema.COUNT, "all": Schema.COUNT}),
    **{key: _NUMBER for key in ("utilization", "mean_queue_ms", "mean_compute_ms")},
}
_DURATION = Schema.object_of({"count": Schema.COUNT, "ns": Schema.COUNT}, "count", "ns")

SCHEMAS: dict[str, Any] = {
    "Error": Schema.object_of({"error": Schema.STRING}, "error"),
    "Server": Schema.object_of(
        {
            "name": Schema.STRING,
            "version": Schema.STRING,
            "extensions": Schema.array_of(Schema.STRING),
        },
        "name",
        "version",
    ),
    "TensorMetadata": Schema.object_of(
        {
            "name": Schema.STRING,
            "datatype": _DATATYPE,
            "shape": Schema.array_of({"type": "integer"}),
        },
        "name",
        "datatype",
        "shape",
    ),
    "Model": Schema.object_of(
        {
            "name": Schema.STRING,
            "versions": Schema.array_of(Schema.STRING),
            "platform": Schema.STRING,
            "inputs": Schema.array_of(Schema.named("TensorMetadata")),
            "outputs": Schema.array_of(Schema.named("TensorMetadata")),
        },
        "name",
        "versions",
        "platform",
        "inputs",
        "outputs",
    ),
    "Configuration": {"type": "object", "description": "ModelConfig of Triton, as JSON."},
    "Duration": _DURATION,
    "ModelStatistics": Schema.object_of(
        {
            "name": Schema.STRING,
            "version": Schema.STRING,
            "last_inference": {**Schema.COUNT, "description": "Milliseconds since 1970."},
            "inference_count": Schema.COUNT,
            "execution_count": Schema.COUNT,
            "inference_stats": {
                "type": "object",
                "additionalProperties": Schema.named("Duration"),
            },
        },
        "name",
        "version",
        "inference_count",
        "execution_count",
        "inference_stats",
    ),
    "Statistics": Schema.object_of(
        {"model_stats": Schema.array_of(Schema.named("ModelStatistics"))},
        "model_stats",
    ),
    "IndexRequest": Schema.object_of(
        {"ready": {**Schema.BOOLEAN, "description": "Only those that are ready."}}
    ),
    "Index": Schema.array_of(
        Schema.object_of(
            {
                "name": Schema.STRING,
                "version": Schema.STRING,
                "state": Schema.STRING,
                "reason": Schema.STRING,
            },
            "name",
        )
    ),
    "LoadRequest": Schema.object_of({"parameters": Schema.object_of({"config": Schema.STRING})}),
    "UnloadRequest": Schema.object_of(
        {"parameters": Schema.object_of({"unload_dependents": Schema.BOOLEAN})}
    ),
    "Load": Schema.object_of(_LOAD),
    "ServerLoad": Schema.object_of({**_LOAD, "models": Schema.array_of(Schema.named("Load"))}),
    "DrainRequest": Schema.object_of(
        {
            "instance": Schema.STRING,
            "then": {"type": "string", "enum": ["nothing", "unload", "restart", "stop"]},
            **{key: _NUMBER for key in ("within_s", "quiet_s")},
            "wait": Schema.BOOLEAN,
        }
    ),
    "UndrainRequest": Schema.object_of({"instance": Schema.STRING}),
    "DrainState": Schema.object_of(
        {
            **{key: Schema.STRING for key in ("model", "instance", "state", "then")},
            "under_way": {"type": ["integer", "null"]},
            "seconds": _NUMBER,
            "is_late": Schema.BOOLEAN,
        }
    ),
    "ScaleRequest": Schema.object_of({"count": Schema.COUNT, "group": Schema.STRING}, "count"),
    "Scale": Schema.object_of(
        {
            "model": Schema.STRING,
            "versions": {
                "type": "object",
                "additionalProperties": Schema.object_of(
                    {"instances": Schema.COUNT, "ready": Schema.COUNT}
                ),
            },
            "autoscale": Schema.object_of(
                {
                    "least": Schema.COUNT,
                    "most": Schema.COUNT,
                    "last_change": Schema.STRING,
                    "obstacle": Schema.STRING,
                }
            ),
        }
    ),
    "Restarted": Schema.object_of(
        {"model": Schema.STRING, "ended": Schema.COUNT}, "model", "ended"
    ),
    "Status": Schema.object_of(
        {
            "server": Schema.object_of(
                {
                    "id": Schema.STRING,
                    "version": Schema.STRING,
                    "ready": Schema.STRING,
                }
            ),
            **{name: Schema.array_of({"type": "object"}) for name in ("processes", "models")},
            "environments": Schema.array_of(Schema.named("Preparation")),
        },
        "server",
        "processes",
        "models",
        "environments",
    ),
    "Preparation": Schema.object_of(
        {
            **{name: Schema.STRING for name in ("model", "step")},
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
        "additionalProperties": Schema.array_of({"type": ["number", "null"]}),
        "description": "A column for each figure, a value for each time; null: no value.",
    },
    "History": Schema.object_of(
        {
            "interval_s": _NUMBER,
            "times": {**Schema.array_of(_NUMBER), "description": "Seconds since 1970."},
            "server": Schema.named("Columns"),
            "models": {"type": "object", "additionalProperties": Schema.named("Columns")},
            "models_left_out": Schema.COUNT,
        },
        "interval_s",
        "times",
        "server",
        "models",
    ),
    "Log": Schema.object_of(
        {
            "lines": Schema.array_of(
                Schema.object_of(
                    {
                        **{name: Schema.COUNT for name in ("number", "pid", "line")},
                        "time_s": _NUMBER,
                        **{
                            name: Schema.STRING
                            for name in ("level", "file", "model", "instance", "text")
                        },
                    }
                )
            ),
            "last": Schema.COUNT,
            "lost": Schema.COUNT,
            **{name: _NUMBER for name in ("begins_s", "started_s")},
        },
        "lines",
        "last",
        "lost",
    ),
    "CanaryRequest": Schema.object_of(
        {
            "version": Schema.COUNT,
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
            **{name: Schema.STRING for name in ("header", "sticky", "latency")},
        }
    ),
    "Canary": Schema.object_of(
        {
            "model": Schema.STRING,
            "phase": Schema.STRING,
            "stable": Schema.COUNT,
            "canary": Schema.COUNT,
            "weight": _NUMBER,
            "reason": Schema.STRING,
        }
    ),
    "InferRequest": Schema.object_of(
        {
            "id": Schema.STRING,
            "parameters": _PARAMETERS,
            "inputs": Schema.array_of(
                Schema.object_of(
                    {**_TENSOR, "parameters": _PARAMETERS}, "name", "datatype", "shape"
                )
            ),
            "outputs": Schema.array_of(
                Schema.object_of({"name": Schema.STRING, "parameters": _PARAMETERS}, "name")
            ),
        },
        "inputs",
    ),
    "InferResponse": Schema.object_of(
        {
            "id": Schema.STRING,
            "model_name": Schema.STRING,
            "model_version": Schema.STRING,
            "parameters": _PARAMETERS,
            "outputs": Schema.array_of(Schema.object_of(_TENSOR, "name", "datatype", "shape")),
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
            "model_name": Schema.STRING,
            "model_version": Schema.STRING,
        },
        "description": "Outputs by their names, with the name and the version of the model.",
    },
    "RegisterRequest": Schema.object_of(
        {
            "key": {
                **Schema.STRING,
                "description": "Name of the shared memory, as shm_open takes it.",
            },
            "offset": Schema.COUNT,
            "byte_size": Schema.COUNT,
        },
        "byte_size",
    ),
    "Regions": Schema.array_of(
        Schema.object_of(
            {
                "name": Schema.STRING,
                "key": Schema.STRING,
                "offset": Schema.COUNT,
                "byte_size": Schema.COUNT,
            },
            "name",
        )
    ),
    "Settings": {"type": "object", "description": "Settings by their names."},
    "Description": {"type": "object", "description": "OpenAPI 3.1."},
}
