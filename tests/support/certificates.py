"""Certificates for a test, made with openssl's command."""

from __future__ import annotations

import shutil
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

from tests.support.needs import skip_missing

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class CertificatePair(NamedTuple):
    cert: Path
    key: Path


class Authority:
    """Signs certificates for 127.0.0.1 and localhost, good for a server and for a client.

    They have what Python's clients ask for from 3.13 on, unless `is_lax`.
    """

    def __init__(self, directory: Path, name: str = "authority", *, is_lax: bool = False) -> None:
        if shutil.which("openssl") is None:
            skip_missing("openssl")
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.pair = CertificatePair(directory / f"{name}.crt", directory / f"{name}.key")
        usage = () if is_lax else ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        subject = ("-subj", f"/CN={name}")
        _openssl("req", "-x509", *_KEY, *subject, *usage, "-days", "2", *_out(self.pair))

    @property
    def cert(self) -> Path:
        return self.pair.cert

    def issue(self, name: str, days: int = 2) -> CertificatePair:
        pair = CertificatePair(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        request = self._directory / f"{name}.csr"
        extensions = self._directory / "extensions"
        extensions.write_text(
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nauthorityKeyIdentifier=keyid\n"
        )
        _openssl("req", "-new", *_KEY, "-subj", f"/CN={name}", *_out(pair._replace(cert=request)))
        _openssl(
            "x509",
            "-req",
            "-in",
            request,
            *_validity(days),
            "-extfile",
            extensions,
            "-CA",
            self.pair.cert,
            "-CAkey",
            self.pair.key,
            "-CAcreateserial",
            "-out",
            pair.cert,
        )
        return pair


def _validity(days: int) -> tuple[str, ...]:
    """Return the options of a certificate for some days; one that has ended has negative ones."""
    if days >= 0 or "-not_after" not in _run("x509", "-help").stderr.decode():
        return ("-days", str(days))
    # newer programs refuse negative ones
    begin, end = (
        (datetime.now(timezone.utc) + timedelta(days=each)).strftime("%Y%m%d%H%M%SZ")
        for each in (2 * days, days)
    )
    return ("-not_before", begin, "-not_after", end)


def _out(pair: CertificatePair) -> tuple[str | Path, ...]:
    return ("-keyout", pair.key, "-out", pair.cert)


def _openssl(*words: str | Path) -> None:
    _run(*words).check_returncode()


def _run(*words: str | Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["openssl", *words], capture_output=True, timeout=60, check=False)
