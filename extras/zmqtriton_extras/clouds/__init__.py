"""The endpoints of Amazon SageMaker and Google's Vertex AI, on ports of their own."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Option, Port

#: Reader of booleans as Triton has them; a switch of ours would need no value.
_BOOLEAN = "zmqtriton.options.values:boolean"
_INTEGER = "zmqtriton.options.values:integer"
_PORT = "zmqtriton.options.values:port"
_SAGEMAKER, _VERTEX = "Sagemaker", "Vertex"
#: Text for Vertex AI, at the start and for a request.
NO_DEFAULT = (
    "Expect the model repository contains only a single model if default model is not specified"
)
_NO_THREADS = "the processes of HTTP serve these endpoints, too"

ADDON = AddOn(
    "clouds",
    needs=("metrics",),
    options=(
        Option(
            "allow-sagemaker",
            _BOOLEAN,
            False,
            "Serve SageMaker's endpoints.",
            "boolean",
            group=_SAGEMAKER,
        ),
        Option(
            "sagemaker-port",
            _PORT,
            8080,
            "Port of these endpoints.",
            "integer",
            group=_SAGEMAKER,
        ),
        Option(
            "sagemaker-safe-port-range",
            ".variables:port_range",
            None,
            "Range in which all other ports must be.",
            "integer-integer",
            group=_SAGEMAKER,
        ),
        Option(
            "sagemaker-thread-count",
            _INTEGER,
            8,
            "Triton's thread count for these endpoints.",
            "integer",
            ignored=_NO_THREADS,
            group=_SAGEMAKER,
        ),
        Option(
            "allow-vertex-ai",
            _BOOLEAN,
            False,
            "Serve Vertex AI's endpoints. Default is true if AIP_MODE is PREDICTION.",
            "boolean",
            group=_VERTEX,
        ),
        Option(
            "vertex-ai-port",
            _PORT,
            8080,
            "Port of these endpoints. Default is $AIP_HTTP_PORT, or 8080.",
            "integer",
            group=_VERTEX,
        ),
        Option(
            "vertex-ai-thread-count",
            _INTEGER,
            8,
            "Triton's thread count for these endpoints.",
            "integer",
            ignored=_NO_THREADS,
            group=_VERTEX,
        ),
        Option(
            "vertex-ai-default-model",
            str,
            "",
            "Model for requests without a model name. Default is the only model.",
            group=_VERTEX,
        ),
    ),
    ports=(
        Port(
            "sagemaker",
            "Sagemaker",
            "sagemaker-port",
            ".endpoints:sagemaker",
            on="allow-sagemaker",
            requests="SageMaker",
            range_of_others="sagemaker-safe-port-range",
        ),
        Port(
            "vertex-ai",
            "Vertex AI",
            "vertex-ai-port",
            ".endpoints:vertex_ai",
            on="allow-vertex-ai",
        ),
    ),
    offers={
        "options.behind": "Shared memory",
        "options.variables": ".variables",
        "supervisor.feature": ".default_model:DefaultModel",
    },
)
