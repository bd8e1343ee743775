"""The way of our own programs to a running server: its control socket, and HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "client": "Client NoServerError QUICK_TIMEOUT_S ServerSelector connect find_directories "
    "own_name",
    "http_service": "Answer HttpService RefusedRequest find_address find_url parse_headers",
}

if TYPE_CHECKING:
    from zmqtriton.control_client.client import (
        QUICK_TIMEOUT_S,
        Client,
        NoServerError,
        ServerSelector,
        connect,
        find_directories,
        own_name,
    )
    from zmqtriton.control_client.http_service import (
        Answer,
        HttpService,
        RefusedRequest,
        find_address,
        find_url,
        parse_headers,
    )
else:
    __getattr__ = lazy_names(__name__, _NAMES)
