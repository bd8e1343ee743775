"""Addresses of servers."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import Any

from zmqtriton.pytriton.client.exceptions import PyTritonClientInvalidUrlError
from zmqtriton.pytriton.constants import DEFAULT_GRPC_PORT, DEFAULT_HTTP_PORT

_PORTS = {"http": DEFAULT_HTTP_PORT, "grpc": DEFAULT_GRPC_PORT}


@dataclass
class TritonUrl:
    """A server's protocol, host and port."""

    scheme: str
    hostname: str
    port: int

    @classmethod
    def from_url(cls, url: Any) -> TritonUrl:
        """Parse a URL; without a scheme it is HTTP's, without a port Triton's own.

        Raises PyTritonClientInvalidUrlError.
        """
        if not isinstance(url, str):
            raise PyTritonClientInvalidUrlError(f"Invalid url {url}. Url must be a string.")
        try:
            # Not urlparse's scheme: it takes the host of `localhost:8000` for one.
            parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
            port = parts.port
        except ValueError as error:
            raise PyTritonClientInvalidUrlError(f"Invalid url {url}") from error
        if parts.scheme not in _PORTS or not parts.hostname:
            raise PyTritonClientInvalidUrlError(f"Invalid url {url}")
        return cls(parts.scheme, parts.hostname, port or _PORTS[parts.scheme])

    @property
    def with_scheme(self) -> str:
        return f"{self.scheme}://{self.without_scheme}"

    @property
    def without_scheme(self) -> str:
        host = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        return f"{host}:{self.port}"
