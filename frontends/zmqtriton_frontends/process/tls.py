"""What connections are encrypted with: TLS 1.2 at least, and certificates that may change.

Made by the HTTP and gRPC frontends where the settings ask for it. With a root certificate clients
must show one that it has signed. grpcio, which has its own TLS, does not use this.
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import Any

_log = logging.getLogger(__name__)


class Encryption:
    """`context` is what connections are made with."""

    def __init__(self, settings: dict[str, Any], service: str, protocol: str) -> None:
        """`protocol` is offered by ALPN. Raises OSError for files that cannot be used."""
        self._service = service
        self._files = Certificates(settings, service)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols([protocol])
        self._load()
        if self._files.root:
            self.context.verify_mode = ssl.CERT_REQUIRED

    def _load(self) -> None:
        self.context.load_cert_chain(self._files.cert, self._files.key, password="")
        if self._files.root:
            self.context.load_verify_locations(self._files.root)

    def renew(self) -> None:
        """To be called now and then: connections made from now on get the newest certificate."""
        if not self._files.have_changed():
            return
        try:
            self._load()
        except OSError as error:  # perhaps only one of the files is new by now
            _log.warning("the certificate has changed and cannot be used: %s", error)
        else:
            _log.info("the certificate of %s was renewed", self._service)


class Certificates:
    """Paths, as a Bootstrap's settings say them for this service."""

    def __init__(self, settings: dict[str, Any], service: str) -> None:
        self.cert: str = settings[f"{service}_server_cert"]
        self.key: str = settings[f"{service}_server_key"]
        #: Signs clients' certificates; "": they need none.
        self.root: str = ""
        if settings[f"{service}_use_ssl_mutual"]:
            self.root = settings[f"{service}_root_cert"]
        self._seen = self._look()

    def have_changed(self) -> bool:
        """Since the last call, or the beginning."""
        before, self._seen = self._seen, self._look()
        return self._seen != before

    def _look(self) -> list[tuple[int, ...]]:
        return [_mark(path) for path in (self.cert, self.key, self.root) if path]


def _mark(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
