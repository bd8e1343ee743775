"""The server's certificate for grpc, renewed without a restart.

Made by grpcio_server.py if the settings ask for it. grpc asks here at each handshake, in a thread
of its own.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import grpc

from zmqtriton_floor.settings.frontends import Tls
from zmqtriton_frontends.process.tls import Certificates

_log = logging.getLogger(__name__)


def of(tls: Tls) -> Any:
    """Return grpc's credentials. Raises OSError for files that cannot be read."""
    files = Certificates(tls)

    def renewed() -> Any:
        """Return the new certificates; None if nothing has changed."""
        if not files.have_changed():
            return None
        try:
            configuration = _read(files)
        except OSError as error:
            _log.warning("the certificate has changed and cannot be read: %s", error)
            return None
        _log.info("the certificate of gRPC was renewed")
        return configuration

    return grpc.dynamic_ssl_server_credentials(
        _read(files), renewed, require_client_authentication=bool(files.root)
    )


def _read(files: Certificates) -> Any:
    pair = (Path(files.key).read_bytes(), Path(files.cert).read_bytes())
    root = Path(files.root).read_bytes() if files.root else None
    return grpc.ssl_server_certificate_configuration([pair], root)
