"""The server's certificate for grpc, renewed without a restart.

Made by grpcio_server.py if the settings ask for it. grpc asks here at each handshake, in a thread
of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from zmqtriton_floor.settings.frontends import Tls
from zmqtriton_frontends.process.tls import Certificates


def of(tls: Tls) -> Any:
    """Return grpc's credentials. Raises OSError for files that cannot be used."""
    files = Certificates(tls, "grpc")

    def read() -> Any:
        files.make_context()  # grpc takes files, too, that do not fit
        pair = (Path(files.key).read_bytes(), Path(files.cert).read_bytes())
        root = Path(files.root).read_bytes() if files.root else None
        return grpc.ssl_server_certificate_configuration([pair], root)

    return grpc.dynamic_ssl_server_credentials(
        read(), lambda: files.renewed(read), require_client_authentication=bool(files.root)
    )
