"""Certificates of a port that change: new ones are taken whole, or the ones before stay."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest

from tests.support.certificates import Authority, CertificatePair
from zmqtriton_floor.settings.frontends import Tls
from zmqtriton_frontends.process.tls import Encryption


class Port:
    """The files of a port, and what it shows."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "authority")
        self.pair = CertificatePair(directory / "server.crt", directory / "server.key")
        self.root = directory / "root.crt"
        shutil.copy(self.authority.cert, self.root)
        self.first = self.authority.issue("first")
        self.copy(self.first.cert, self.pair.cert)
        self.copy(self.first.key, self.pair.key)
        tls = Tls(str(self.pair.cert), str(self.pair.key), str(self.root))
        self.encryption = Encryption(tls, "HTTP", "http/1.1")

    def copy(self, source: Path, target: Path) -> None:
        """Copy as people do, over the old file."""
        target.write_bytes(source.read_bytes())

    def shake_hands(self, client: CertificatePair) -> bytes | None:
        """Return the certificate that a client is shown; None if the two do not agree."""
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(self.authority.cert))
        context.load_cert_chain(*client)
        ours = self.encryption.context.wrap_bio(to_server, to_client, server_side=True)
        theirs = context.wrap_bio(to_client, to_server, server_hostname="localhost")
        try:
            for _ in range(4):
                for side in (theirs, ours):
                    try:
                        side.do_handshake()
                    except ssl.SSLWantReadError:
                        continue
        except ssl.SSLError:
            return None
        return theirs.getpeercert(binary_form=True)


def der_of(pair: CertificatePair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.cert.read_text())


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return Port(tmp_path)


@pytest.mark.parametrize("first", ["cert", "key"])
def test_while_certificate_and_key_do_not_fit_the_ones_before_serve(
    port: Port, first: str, caplog: pytest.LogCaptureFixture
) -> None:
    renewed = port.authority.issue("renewed")
    port.copy(getattr(renewed, first), getattr(port.pair, first))

    for _ in range(3):
        port.encryption.renew()
        assert der_of(port.first) == port.shake_hands(renewed)

    warnings = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert [text.partition(" has changed and cannot be used")[0] for text in warnings] == [
        "the certificate of HTTP"
    ]
    for source, target in zip(renewed, port.pair, strict=True):
        port.copy(source, target)
    port.encryption.renew()
    assert der_of(renewed) == port.shake_hands(renewed)


def test_an_authority_that_was_replaced_signs_for_nobody(port: Port, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "other")
    stranger, friend = other.issue("client"), port.authority.issue("client")
    assert port.shake_hands(friend)
    assert not port.shake_hands(stranger)

    port.copy(other.cert, port.root)
    port.encryption.renew()

    assert port.shake_hands(stranger)
    assert not port.shake_hands(friend)


def test_files_that_did_not_change_are_read_once(port: Port) -> None:
    before = port.encryption.context

    port.encryption.renew()

    assert before is port.encryption.context
