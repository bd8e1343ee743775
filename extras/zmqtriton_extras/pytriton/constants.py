"""Numbers and names that scripts may import."""

from __future__ import annotations

DEFAULT_HTTP_PORT = 8000
DEFAULT_GRPC_PORT = 8001
DEFAULT_METRICS_PORT = 8002
TRITON_LOCAL_IP = "127.0.0.1"
#: The header of HTTP with the access token; gRPC's has a prefix.
TRITON_ACCESS_HEADER = "triton-access-token"
TRITON_CONTEXT_FIELD_NAME = "triton_context"
DEFAULT_TRITON_STARTUP_TIMEOUT_S = 120
CREATE_TRITON_CLIENT_TIMEOUT_S = 10
