"""The header with the access token, which has another name over each protocol."""

from __future__ import annotations

from collections.abc import Mapping

from zmqtriton_extras.pytriton.constants import TRITON_ACCESS_HEADER

#: A gRPC server with restricted protocols looks for their keys under this prefix.
_GRPC_PREFIX = "triton-grpc-protocol-"


def create_auth_headers(access_token: str | None, protocol: str) -> dict[str, str]:
    """Return the header of this token over `http` or `grpc`. Raises ValueError."""
    if not access_token:
        raise ValueError("access_token cannot be None or empty")
    names = {"http": TRITON_ACCESS_HEADER, "grpc": f"{_GRPC_PREFIX}{TRITON_ACCESS_HEADER}"}
    if protocol.lower() not in names:
        raise ValueError(f"Invalid protocol '{protocol.lower()}'. Must be 'http' or 'grpc'")
    return {names[protocol.lower()]: access_token}


def extract_access_token_from_headers(headers: Mapping[str, str] | None) -> str | None:
    """Return the token that the headers carry. Raises ValueError if they carry two."""
    grpc_header = f"{_GRPC_PREFIX}{TRITON_ACCESS_HEADER}"
    tokens = [(headers or {}).get(name) for name in (TRITON_ACCESS_HEADER, grpc_header)]
    if None not in tokens and tokens[0] != tokens[1]:
        raise ValueError(
            f"Conflicting authentication headers found: '{TRITON_ACCESS_HEADER}' and "
            f"'{grpc_header}' contain different tokens. Please use consistent tokens."
        )
    return tokens[0] or tokens[1]
