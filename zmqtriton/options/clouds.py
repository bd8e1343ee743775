"""The environment variables by which SageMaker and Vertex AI configure a server, as in Triton."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from zmqtriton.options.result import Options
from zmqtriton.options.values import BadValue

_VERTEX = "failed to start Vertex AI service: Invalid argument"
#: What /invocations may be.
_INFERENCE_TYPES = ("infer", "generate", "generate_stream")


def defaults(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the options that have other defaults in this environment. Raises BadValue."""
    options: dict[str, Any] = {}
    if environment.get("AIP_MODE") == "PREDICTION":
        options = {"allow_vertex_ai": True, "allow_http": False, "allow_grpc": False}
    port = environment.get("AIP_HTTP_PORT", "")
    if port:
        if not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
            raise BadValue(f"AIP_HTTP_PORT: '{port}' is not a port")
        options["vertex_ai_port"] = int(port)
    return options


def repositories(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the model repositories of a command line that names none."""
    uri = environment.get("AIP_STORAGE_URI", "")
    return (uri,) if uri else ()


def check(options: Options, environment: Mapping[str, str]) -> None:
    """Raise BadValue if an endpoint that is to be served lacks a variable."""
    if options.allow_vertex_ai:
        # The first is misspelled in Triton, too.
        for variable, name in (
            ("AIP_PREDICT_ROUTE", "API_PREDICT_ROUTE"),
            ("AIP_HEALTH_ROUTE", "AIP_HEALTH_ROUTE"),
        ):
            pattern = environment.get(variable, "")
            if not pattern:
                raise BadValue(f"{_VERTEX} - {name} is not defined for Vertex AI endpoint")
            try:
                re.compile(pattern)
            except re.error as error:
                raise BadValue(f"{_VERTEX} - {variable} '{pattern}': {error}") from None
    kind = environment.get("SAGEMAKER_TRITON_INFERENCE_TYPE", "infer")
    if options.allow_sagemaker and kind not in _INFERENCE_TYPES:
        raise BadValue(
            f"SAGEMAKER_TRITON_INFERENCE_TYPE: '{kind}' is none of: {', '.join(_INFERENCE_TYPES)}"
        )


def endpoint_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the processes that serve these endpoints must know."""
    return {
        "sagemaker_model": environment.get(
            "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME",
            "unspecified_SAGEMAKER_TRITON_DEFAULT_MODEL_NAME",
        ),
        "sagemaker_ping_mode": environment.get("SAGEMAKER_TRITON_PING_MODE", "ready"),
        "sagemaker_inference_type": environment.get("SAGEMAKER_TRITON_INFERENCE_TYPE", "infer"),
        "vertex_ai_predict_route": environment.get("AIP_PREDICT_ROUTE", ""),
        "vertex_ai_health_route": environment.get("AIP_HEALTH_ROUTE", ""),
    }
