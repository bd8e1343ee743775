"""Encryption of connections: TLS 1.2 at least, and certificates that may change.

With a root certificate clients must present one that it has signed. grpcio, which has its own TLS,
uses the files alone.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from typing import TypeVar

from zmqtriton_floor.settings.frontends import Tls

_log = logging.getLogger(__name__)

_Made = TypeVar("_Made")


class Encryption:
    """Connections use `context`, whichever it is when they begin."""

    def __init__(self, tls: Tls, service: str, protocol: str) -> None:
        """Set up; `protocol` is offered by ALPN. Raises OSError for files that cannot be used."""
        self._protocol = protocol
        self._files = Certificates(tls, service)
        self.context = self._make_context()

    def _make_context(self) -> ssl.SSLContext:
        context = self._files.make_context()
        context.set_alpn_protocols([self._protocol])
        return context

    def renew(self) -> None:
        """Use the newest certificate for connections from now on; to be called now and then."""
        self.context = self._files.renewed(self._make_context) or self.context


class Certificates:
    """The files of a service, watched for changes."""

    def __init__(self, tls: Tls, service: str) -> None:
        self.cert, self.key = tls.server_cert, tls.server_key
        #: Signs clients' certificates; "" if they need none.
        self.root = tls.root_cert
        self._service = service
        self._seen = self._look()
        #: Why the newest files cannot be used; "" if they are in use.
        self._problem = ""

    def make_context(self) -> ssl.SSLContext:
        """Make a context of the files. Raises OSError if they cannot be used.

        A new one each time: files that do not fit, or an authority that is gone, would stay in one
        that is in use.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.cert, self.key, password="")
        if self.root:
            context.load_verify_locations(self.root)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def renewed(self, make: Callable[[], _Made]) -> _Made | None:
        """Make something of the files; None without a change, or if they cannot be used.

        Files that cannot be used are tried again at each call.
        """
        before, self._seen = self._seen, self._look()
        has_changed = self._seen != before
        if not (has_changed or self._problem):
            return None
        try:
            made = make()
        except OSError as error:  # perhaps only one of the files is new by now
            problem = str(error)
            if has_changed or problem != self._problem:
                _log.warning(
                    "the certificate of %s has changed and cannot be used, so the one before is "
                    "served: %s",
                    self._service,
                    problem,
                )
            self._problem = problem
            return None
        self._problem = ""
        _log.info("the certificate of %s was renewed", self._service)
        return made

    def _look(self) -> list[tuple[int, ...]]:
        return [_mark(path) for path in (self.cert, self.key, self.root) if path]


def _mark(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    times = status.st_mtime_ns, status.st_ctime_ns
    return (status.st_dev, status.st_ino, *times, status.st_size)
