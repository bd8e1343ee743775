"""Encryption of connections: TLS 1.2 at least, and certificates that may change.

With a root certificate clients must present one that it has signed. grpcio, which has its own TLS,
does not use this.
"""

from __future__ import annotations

import logging
import os
import ssl

from zmqtriton_floor.settings.frontends import Tls

_log = logging.getLogger(__name__)


class Encryption:
    """Connections use `context`."""

    def __init__(self, tls: Tls, service: str, protocol: str) -> None:
        """Set up; `protocol` is offered by ALPN. Raises OSError for files that cannot be used."""
        self._service = service
        self._files = Certificates(tls)
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
        """Use the newest certificate for connections from now on; to be called now and then."""
        if not self._files.have_changed():
            return
        try:
            self._load()
        except OSError as error:  # perhaps only one of the files is new by now
            _log.warning("the certificate has changed and cannot be used: %s", error)
        else:
            _log.info("the certificate of %s was renewed", self._service)


class Certificates:
    """The files of a service, watched for changes."""

    def __init__(self, tls: Tls) -> None:
        self.cert, self.key = tls.server_cert, tls.server_key
        #: Signs clients' certificates; "" if they need none.
        self.root = tls.root_cert
        self._seen = self._look()

    def have_changed(self) -> bool:
        """True if a file has changed since the last call, or the beginning."""
        before, self._seen = self._seen, self._look()
        return self._seen != before

    def _look(self) -> list[tuple[int, ...]]:
        return [_mark(path) for path in (self.cert, self.key, self.root) if path]


def _mark(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
