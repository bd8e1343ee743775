"""The environment variables of the platforms that configure a server, as in Triton. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from zmqtriton.sdk.process import options as server_options

_VERTEX = "failed to start Vertex AI service: Invalid argument"
#: Kinds of inference for /invocations.
_INFERENCE_TYPES = ("infer", "generate", "generate_stream")

port_range = server_options.pair(server_options.integer, server_options.integer, "-")


def defaults(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the options that have other defaults in this environment. Raises BadValue."""
    options: dict[str, Any] = {}
    if environment.get("AIP_MODE") == "PREDICTION":
        options = {"allow_vertex_ai": True, "allow_http": False, "allow_grpc": False}
    port = environment.get("AIP_HTTP_PORT", "")
    if port:
        if not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
            raise server_options.BadValue(f"AIP_HTTP_PORT: '{port}' must be a port, 1 to 65535")
        options["vertex_ai_port"] = int(port)
    if uri := environment.get("AIP_STORAGE_URI", ""):
        options["model_repository"] = (uri,)
    return options


def check(value_of: Callable[[str], Any], environment: Mapping[str, str]) -> None:
    """Raise BadValue if an endpoint lacks a variable that it needs."""
    if value_of("allow_vertex_ai"):
        # The first is misspelled in Triton, too.
        for variable, name in (
            ("AIP_PREDICT_ROUTE", "API_PREDICT_ROUTE"),
            ("AIP_HEALTH_ROUTE", "AIP_HEALTH_ROUTE"),
        ):
            pattern = environment.get(variable, "")
            if not pattern:
                raise server_options.BadValue(
                    f"{_VERTEX} - {name} is not defined for Vertex AI endpoint"
                )
            try:
                re.compile(pattern)
            except re.error as error:
                raise server_options.BadValue(
                    f"{_VERTEX} - {variable} '{pattern}': {error}"
                ) from None
    kind = environment.get("SAGEMAKER_TRITON_INFERENCE_TYPE", "infer")
    if value_of("allow_sagemaker") and kind not in _INFERENCE_TYPES:
        raise server_options.BadValue(
            f"SAGEMAKER_TRITON_INFERENCE_TYPE: '{kind}' must be one of "
            f"{', '.join(_INFERENCE_TYPES)}"
        )
