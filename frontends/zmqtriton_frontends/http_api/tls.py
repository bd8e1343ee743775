"""HTTPS: the context that connections are made with, and its renewal.

Made by server.py where the settings ask for it. TLS 1.2 at least; with a root certificate clients
must show one that it has signed.
"""

from __future__ import annotations

import logging
import ssl
from typing import Any

from zmqtriton_frontends.certificates import Certificates

_log = logging.getLogger(__name__)

#: A client that has not made itself understood by then is none.
HANDSHAKE_WITHIN_S = 9.0


class Tls:
    def __init__(self, settings: dict[str, Any]) -> None:
        """Raises OSError for files that cannot be used."""
        self._files = Certificates(settings, "http")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
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
            _log.info("the certificate of HTTP was renewed")


def of(settings: dict[str, Any]) -> Tls | None:
    """None where connections are plain."""
    return Tls(settings) if settings["http_use_ssl"] else None
