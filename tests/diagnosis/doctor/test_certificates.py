"""Certificates in files, and those that a port shows."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.diagnosis.doctor.findings import texts
from tests.support.certificates import Authority, CertificatePair
from zmqtriton.diagnosis.rules import certificates
from zmqtriton.findings import Finding

pytestmark = pytest.mark.slow

DAY_S = 86400


def faults(findings: Iterator[Finding]) -> list[str]:
    """Return the texts without those of valid certificates."""
    return [text for text in texts(findings) if not text.startswith("note: ")]


@pytest.mark.row("L13")
def test_certificates_that_expire_or_cannot_be_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.issue("one", days=90), authority.issue("other")
    one.key.chmod(0o600)
    dates = ssl._ssl._test_decode_cert(str(one.cert))  # type: ignore[attr-defined]
    begins_s, ends_s = (ssl.cert_time_to_seconds(dates[key]) for key in ("notBefore", "notAfter"))

    def judge(key: str, now_s: float, service: str = "http") -> list[str]:
        options = {
            f"{service}-use-ssl": True,
            f"{service}-server-cert": str(one.cert),
            f"{service}-server-key": key,
        }
        return texts(certificates.judge_certificates(options, now_s, is_running=False))

    key = str(one.key)
    expected = f"the certificate {one.cert}"
    for service in ("http", "grpc"):
        [valid] = judge(key, begins_s + 1, service)
        assert valid.startswith(f"note: {expected} is valid until ")
        assert "in 89 days" in valid
    assert f"warning: {expected} expires in 1 day, " in judge(key, ends_s - 1.5 * DAY_S)[0]
    assert f"warning: {expected} expires within a day, " in judge(key, ends_s - 1)[0]
    assert f"error: {expected} has expired" in judge(key, ends_s + DAY_S)[0]
    assert f"error: {expected} is valid only from" in judge(key, begins_s - DAY_S)[0]
    assert "cannot be used: KEY_VALUES_MISMATCH" in judge(str(other.key), begins_s + 1)[0]
    assert "cannot be used: No such file or directory" in judge("/nowhere", begins_s + 1)[0]
    one.key.chmod(0o644)
    assert "every user of this machine can read the key" in judge(key, begins_s + 1)[1]


def test_certificates_that_clients_of_newer_pythons_refuse(tmp_path: Path) -> None:
    def judge(authority: Authority, *, is_known: bool) -> list[str]:
        pair = authority.issue("server")
        pair.key.chmod(0o600)
        chain = "" if is_known else authority.cert.read_text()
        pair.cert.write_text(pair.cert.read_text() + chain)
        options = {
            "http-use-ssl": True,
            "http-server-cert": str(pair.cert),
            "http-server-key": str(pair.key),
            "http-root-cert": str(authority.cert) if is_known else "",
        }
        return texts(certificates.judge_certificates(options, time.time(), is_running=False))

    strict = Authority(tmp_path / "strict")
    lax = Authority(tmp_path / "lax", is_lax=True)
    for is_known in (True, False):
        [_expires_soon] = judge(strict, is_known=is_known)
        _, refused = judge(lax, is_known=is_known)

        assert "warning: clients of Python 3.13 and newer refuse the certificate" in refused
        assert "key usage" in refused


@contextmanager
def shown(pair: CertificatePair) -> Iterator[int]:
    """Show a certificate on a port, as a server that wants one of its clients, too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    context.load_verify_locations(pair.cert)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    plain, _ = listener.accept()
                    with plain, suppress(OSError), context.wrap_socket(plain, server_side=True):
                        pass

        serving = threading.Thread(target=serve)
        serving.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        serving.join()


@pytest.mark.row("L13")
def test_what_is_served_while_the_files_do_not_fit_or_are_not_taken(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    served, renewed = authority.issue("served", days=30), authority.issue("renewed", days=90)
    renewed.key.chmod(0o600)
    one = CertificatePair(tmp_path / "one.crt", tmp_path / "one.key")
    shutil.copy(served.cert, one.cert)
    shutil.copy(served.key, one.key)
    one.key.chmod(0o600)
    now_s = time.time()
    until = time.strftime("%Y-%m-%d", time.localtime(now_s + 30 * DAY_S))

    def judge(pair: CertificatePair, now_s: float = now_s) -> list[str]:
        options: dict[str, Any] = {
            "grpc-use-ssl": True,
            "grpc-server-cert": str(pair.cert),
            "grpc-server-key": str(pair.key),
            "grpc-address": "0.0.0.0",
            "grpc-port": port,
        }
        return faults(certificates.judge_certificates(options, now_s, is_running=True))

    with shown(served) as port:
        assert [] == judge(one)

        # of a server that has relative paths only what it serves is known
        relative = CertificatePair(Path("cert.pem"), Path("key.pem"))
        assert [] == judge(relative)
        [late] = judge(relative, now_s + 20 * DAY_S)
        assert "the certificate that the server serves over grpc expires in 9 days" in late

        [text] = judge(CertificatePair(renewed.cert, one.key))
        assert text.startswith(f"error: --grpc-server-cert: {renewed.cert} and {one.key} cannot be")
        assert text.endswith(f"; the server serves the certificate of before, valid until {until}")
        old, late = judge(CertificatePair(renewed.cert, one.key), now_s + 20 * DAY_S)
        assert "cannot be used" in old
        assert "the certificate that the server serves over grpc expires in 9 days" in late

        assert [] == judge(renewed)  # it has not had the time to take it
        os.utime(renewed.cert, (now_s - 60, now_s - 60))
        [text] = judge(renewed)
        assert f"the server does not serve the certificate {renewed.cert}" in text
        assert f"but an earlier one, valid until {until}" in text

    assert [] == judge(renewed)
