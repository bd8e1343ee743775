"""The HTTP frontend: KServe v2 with Triton's extensions, a Falcon ASGI application under gunicorn.

`server/` is the process, `app.py` the table of routes; the rest turns bytes into checked requests
for the gateway and responses back into bytes. Knows nothing of instances, queues or batches.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "app": "build routes",
    "asgi.access": "AccessRules Responder Route need_of_route",
    "asgi.request": "HttpRequest TooLarge",
    "extension": "BOOLEAN COUNT STRING EndpointParts Example HttpExtension Operation "
    "RouteDescriptions array_of extensions object_of schema_named",
    "inference.infer": "HttpEntrance Inference JSON_LENGTH inflate",
    "inference.tensor_data": "JSON_LENGTH_HEADER json_from_bytes json_to_bytes",
    "inference.response_encoding": "ResponseFormat size_of_response",
    "server.asgi_exchange": "Upgraded",
}

if TYPE_CHECKING:
    from zmqtriton_frontends.http_api.app import build, routes
    from zmqtriton_frontends.http_api.asgi.access import (
        AccessRules,
        Responder,
        Route,
        need_of_route,
    )
    from zmqtriton_frontends.http_api.asgi.request import HttpRequest, TooLarge
    from zmqtriton_frontends.http_api.extension import (
        BOOLEAN,
        COUNT,
        STRING,
        EndpointParts,
        Example,
        HttpExtension,
        Operation,
        RouteDescriptions,
        array_of,
        extensions,
        object_of,
        schema_named,
    )
    from zmqtriton_frontends.http_api.inference.infer import (
        JSON_LENGTH,
        HttpEntrance,
        Inference,
        inflate,
    )
    from zmqtriton_frontends.http_api.inference.response_encoding import (
        ResponseFormat,
        size_of_response,
    )
    from zmqtriton_frontends.http_api.inference.tensor_data import (
        JSON_LENGTH_HEADER,
        json_from_bytes,
        json_to_bytes,
    )
    from zmqtriton_frontends.http_api.server.asgi_exchange import Upgraded
else:
    __getattr__ = lazy_names(__name__, _NAMES)
