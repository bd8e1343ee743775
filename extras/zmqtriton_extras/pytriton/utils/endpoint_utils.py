"""The addresses of a server by its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from zmqtriton_extras.pytriton.server_options import TritonConfig
from zmqtriton_extras.pytriton.server_options import endpoint as endpoint_of

_FIELDS = (
    "http_address",
    "grpc_address",
    "metrics_address",
    "http_port",
    "grpc_port",
    "metrics_port",
)


def get_endpoint(
    server_config: Mapping[str, Any], endpoint: Literal["http", "grpc", "metrics"]
) -> str:
    """Return the URL at which this machine finds an endpoint.

    `server_config` has the options of the command line, such as `http-port`.
    """
    options = {name: server_config.get(name.replace("_", "-")) for name in _FIELDS}
    return endpoint_of(TritonConfig.from_dict(options), endpoint)
