"""The options of the server that a script configures, and its addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zmqtriton.embedded import command_words
from zmqtriton.options import BadValue, OptionError, parse, restriction
from zmqtriton.pytriton import constants
from zmqtriton.pytriton.constants import TRITON_ACCESS_HEADER
from zmqtriton.pytriton.exceptions import PyTritonValidationError
from zmqtriton.pytriton.security import TritonSecurityConfig
from zmqtriton.pytriton.triton_config import TritonConfig

_ANY_ADDRESS = re.compile(r"0+\.0+\.0+\.0+|\[?::\]?")
_RESTRICTIONS = (("http_restricted_api", "api"), ("grpc_restricted_protocol", "protocol"))
#: Fields of the address, the port, and the port that is the default.
_ENDPOINTS = {
    "http": (("http_address",), "http_port", constants.DEFAULT_HTTP_PORT),
    "grpc": (("grpc_address",), "grpc_port", constants.DEFAULT_GRPC_PORT),
    "metrics": (
        ("metrics_address", "http_address"),
        "metrics_port",
        constants.DEFAULT_METRICS_PORT,
    ),
}


def server_options(
    config: TritonConfig,
    security: TritonSecurityConfig,
    *,
    model_repository: Path,
    token_file: Path,
) -> dict[str, Any]:
    """Return the options for `zmqtriton.Server`; a list has an option's values.

    The server begins with the models of its repository, `model_repository` unless the configuration
    has one, and loads others on request. `token_file` is for the access token, since everybody on a
    machine can read command lines; the caller writes it. Raises PyTritonValidationError for what
    the server would refuse.
    """
    options = {
        "model_repository": model_repository,
        "model_control_mode": "explicit",
        "load_model": "*",
        "allow_http": True,
        "allow_grpc": True,
        "allow_metrics": True,
        **{name: value for name, value in config.to_dict().items() if value is not None},
    }
    for name, kind in _RESTRICTIONS:
        own = options.get(name)
        rest = _unrestricted(f"--{name.replace('_', '-')}", kind, own, security)
        if rest:
            token = f"{','.join(rest)}:{TRITON_ACCESS_HEADER}=@{token_file.absolute()}"
            options[name] = [token] if own is None else [own, token]
    unsupported_options(options)
    return options


def _unrestricted(
    option: str, kind: str, own: str | None, security: TritonSecurityConfig
) -> list[str]:
    """Return the endpoints to protect by the token: what the user restricts otherwise stays so."""
    try:
        restricted = () if own is None else restriction(option, kind, "")(own).categories
    except BadValue as error:
        raise PyTritonValidationError(str(error)) from None
    endpoints = security.restricted_endpoints if security.access_token else None
    return [name for name in endpoints or () if name not in restricted]


def unsupported_options(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the server will say about options that it does not honour."""
    try:
        return parse([*command_words(options)]).warnings
    except OptionError as error:
        raise PyTritonValidationError(str(error)) from None


def endpoint(config: TritonConfig, protocol: str) -> str:
    """Return the URL at which this machine finds `http`, `grpc` or `metrics`."""
    address_fields, port_field, default_port = _ENDPOINTS[protocol]
    addresses = (getattr(config, name) for name in address_fields)
    listened = (address for address in addresses if address and not _ANY_ADDRESS.fullmatch(address))
    address = next(listened, constants.TRITON_LOCAL_IP)
    if ":" in address and not address.startswith("["):
        address = f"[{address}]"
    scheme = "grpc" if protocol == "grpc" else "http"
    port = getattr(config, port_field)
    return f"{scheme}://{address}:{port or default_port}"
