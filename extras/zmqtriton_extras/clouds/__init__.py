"""The endpoints of Amazon SageMaker and Google's Vertex AI, on ports of their own."""

from __future__ import annotations

from typing import Annotated, NamedTuple

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


class CloudsOptions(NamedTuple):
    allow_sagemaker: Annotated[
        bool,
        Option("Serve SageMaker's endpoints.", read=_BOOLEAN, metavar="boolean", group=_SAGEMAKER),
    ] = False
    sagemaker_port: Annotated[
        int, Option("Port of these endpoints.", read=_PORT, metavar="integer", group=_SAGEMAKER)
    ] = 8080
    sagemaker_safe_port_range: Annotated[
        tuple[int, int] | None,
        Option(
            "Range in which all other ports must be.",
            read=".variables:port_range",
            metavar="integer-integer",
            group=_SAGEMAKER,
        ),
    ] = None
    sagemaker_thread_count: Annotated[
        int,
        Option(
            "Triton's thread count for these endpoints.",
            read=_INTEGER,
            metavar="integer",
            ignored=_NO_THREADS,
            group=_SAGEMAKER,
        ),
    ] = 8
    allow_vertex_ai: Annotated[
        bool,
        Option(
            "Serve Vertex AI's endpoints. Default is true if AIP_MODE is PREDICTION.",
            read=_BOOLEAN,
            metavar="boolean",
            group=_VERTEX,
        ),
    ] = False
    vertex_ai_port: Annotated[
        int,
        Option(
            "Port of these endpoints. Default is $AIP_HTTP_PORT, or 8080.",
            read=_PORT,
            metavar="integer",
            group=_VERTEX,
        ),
    ] = 8080
    vertex_ai_thread_count: Annotated[
        int,
        Option(
            "Triton's thread count for these endpoints.",
            read=_INTEGER,
            metavar="integer",
            ignored=_NO_THREADS,
            group=_VERTEX,
        ),
    ] = 8
    vertex_ai_default_model: Annotated[
        str,
        Option(
            "Model for requests without a model name. Default is the only model.", group=_VERTEX
        ),
    ] = ""


ADDON = AddOn(
    "clouds",
    needs=("metrics",),
    options=CloudsOptions,
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
