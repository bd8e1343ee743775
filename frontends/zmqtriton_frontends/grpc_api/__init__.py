"""The gRPC frontend: KServe v2 and Triton's extensions, and the standard health service.

`handlers.py` has the table of RPCs, with bytes in and bytes out; `transport/` carries them.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "handlers": "Exchange Rpc",
    "inference.response": "MAX_MESSAGE_BYTES",
    "transport.lifecycle": "FAR_S INFERENCE MAX_STREAMS SERVICE RpcLifecycle compression_of "
    "details_of pushback",
    "call": "Begin answered client_error",
}

if TYPE_CHECKING:
    from zmqtriton_frontends.grpc_api.call import Begin, answered, client_error
    from zmqtriton_frontends.grpc_api.handlers import Exchange, Rpc
    from zmqtriton_frontends.grpc_api.inference.response import MAX_MESSAGE_BYTES
    from zmqtriton_frontends.grpc_api.transport.lifecycle import (
        FAR_S,
        INFERENCE,
        MAX_STREAMS,
        SERVICE,
        RpcLifecycle,
        compression_of,
        details_of,
        pushback,
    )
else:
    __getattr__ = lazy_names(__name__, _NAMES)
