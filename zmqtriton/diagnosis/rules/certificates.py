"""Certificates: those in files, and those that a running server shows."""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton.diagnosis.rules.files import is_public
from zmqtriton.findings import Finding

_DAY_S = 86400
#: Minimum seconds of validity that a certificate should have left: enough to renew it by hand.
_ENDS_SOON_S = 21 * _DAY_S
#: Seconds for the server to take a new certificate: usually one, more on a busy machine.
_TAKEN_WITHIN_S = 10.0
_TIMEOUT_S = 2.0
_END_OF_CERTIFICATE = "-----END CERTIFICATE-----"
#: The addresses that stand for all, and where a connection to them goes.
_ANYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class Dates(NamedTuple):
    begins_s: float
    ends_s: float


def judge_certificates(
    options: Mapping[str, Any], now_s: float, *, is_running: bool
) -> Iterator[Finding]:
    """Judge the files of each service and, of a server that runs, what it shows."""
    for service in ("http", "grpc"):
        path = options.get(f"{service}-server-cert", "")
        if options.get(f"{service}-use-ssl") and path:
            address = options.get(f"{service}-address", "")
            place = _ANYWHERE.get(address, address), options.get(f"{service}-port", 0)
            shown = _shown_at(place) if is_running else None
            option, key_path = f"--{service}-server-cert", options[f"{service}-server-key"]
            if is_running and not os.path.isabs(path):
                # the file is below the server's working directory, and not below this one
                if shown is not None:
                    yield from _judge_dates(_served(option), _dates_of(shown), now_s, _ask(place))
                continue
            yield from _judge(option, path, key_path, now_s, shown)
            yield from _judge_extensions(path, key_path, options.get(f"{service}-root-cert", ""))


def _judge(
    option: str, path: str, key_path: str, now_s: float, shown: bytes | None
) -> Iterator[Finding]:
    look = f"openssl x509 -noout -dates -in {path}"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path, key_path, password="")
        dates = _read_dates(path)
        with open(path, encoding="latin-1") as file:
            of_file = _first_of(file.read())
        is_key_public = is_public(key_path)
    except (OSError, ValueError) as problem:
        yield _unusable(option, path, key_path, problem, shown)
        if shown is not None:
            yield from _judge_dates(_served(option), _dates_of(shown), now_s, look)
        return
    if shown is None or shown == of_file:
        yield from _judge_dates(f"the certificate {path}", dates, now_s, look)
    else:
        yield from _judge_dates(_served(option), _dates_of(shown), now_s, look)
        if now_s - os.stat(path).st_mtime > _TAKEN_WITHIN_S:
            yield Finding.warning(
                f"the server does not serve the certificate {path}, {_until(dates)}, but an "
                f"earlier one, {_until(_dates_of(shown))}",
                "Its log says why, in a line with `the certificate of`.",
                "zmqtriton-ctl logs",
            )
    if is_key_public:
        yield Finding.warning(
            f"every user of this machine can read the key {key_path}",
            "Its owner can pretend to be this server.",
            f"chmod 600 {key_path}",
        )


def _unusable(
    option: str, path: str, key_path: str, problem: Exception, shown: bytes | None
) -> Finding:
    reason = getattr(problem, "reason", None) or getattr(problem, "strerror", None) or problem
    served = ""
    if shown is not None:
        served = f"; the server serves the certificate of before, {_until(_dates_of(shown))}"
    return Finding.error(
        f"{option}: {path} and {key_path} cannot be used: {reason}{served}",
        "The certificate and its key must belong together, in PEM form without a password, "
        "readable to the server's user.",
        f"ls -l {path} {key_path}",
    )


def _served(option: str) -> str:
    service = option.removeprefix("--").partition("-")[0]
    return f"the certificate that the server serves over {service}"


def _ask(place: tuple[str, int]) -> str:
    """Return a command that shows the dates of a certificate in use."""
    host, port = place
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"openssl s_client -connect {address} < /dev/null | openssl x509 -noout -dates"


def _judge_dates(certificate: str, dates: Dates, now_s: float, look: str) -> Iterator[Finding]:
    begins_s, ends_s = dates
    if now_s >= ends_s:
        yield Finding.error(
            f"{certificate} has expired, {_date(ends_s)}",
            "Replace the files; the server reads them again by itself.",
            look,
        )
    elif now_s < begins_s:
        yield Finding.error(
            f"{certificate} is valid only from {_date(begins_s)}", "Is the clock right?", look
        )
    elif ends_s - now_s < _ENDS_SOON_S:
        days = int((ends_s - now_s) / _DAY_S)
        left = "within a day" if not days else f"in {days} day{'s' * (days != 1)}"
        yield Finding.warning(
            f"{certificate} expires {left}, {_date(ends_s)}",
            "Replace the files in time; the server reads them again by itself.",
            look,
        )
    else:
        days = int((ends_s - now_s) / _DAY_S)
        yield Finding.note(
            f"{certificate} is valid until {_date(ends_s)}, in {days} days",
            "The server reads new files by itself.",
            look,
        )


def _judge_extensions(path: str, key_path: str, root: str) -> Iterator[Finding]:
    """Judge the extensions of a certificate, which Python's clients have checked since 3.13."""
    try:
        authorities = Path(root or path).read_text("ascii")
        if not root:
            # those that come with the server's own certificate, which is the first
            authorities = authorities.partition(_END_OF_CERTIFICATE)[2]
        if _END_OF_CERTIFICATE not in authorities or _refusal(path, key_path, authorities, 0):
            return
        reason = _refusal(path, key_path, authorities, ssl.VERIFY_X509_STRICT)
    except (OSError, ValueError):
        return  # what cannot be read has its own finding
    if reason:
        yield Finding.warning(
            f"clients of Python 3.13 and newer refuse the certificate {path}: {reason}",
            "Add that extension to the certificate, or to that of its authority.",
            f"openssl x509 -noout -text -in {path}",
        )


def _refusal(path: str, key_path: str, authorities: str, flags: int) -> str:
    """Return why a client refuses the certificate, or ""; tries it without a socket."""
    server, client = (
        ssl.SSLContext(protocol) for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    server.load_cert_chain(path, key_path, password="")
    client.check_hostname = False
    client.load_verify_locations(cadata=authorities)
    client.verify_flags |= flags | ssl.VERIFY_X509_PARTIAL_CHAIN
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for end in (*ends, *ends):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError as problem:
            return problem.verify_message
    return ""


def _until(dates: Dates) -> str:
    return f"valid until {_date(dates.ends_s)}"


def _date(moment_s: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(moment_s))


# ---------------------------------------------------------------------- reading


def _shown_at(place: tuple[str, int]) -> bytes | None:
    """Return the certificate that a place shows to clients; None if no TLS is spoken there."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        with (
            socket.create_connection(place, _TIMEOUT_S) as plain,
            # of TLS 1.3 this is over before a server says that it wants a certificate
            context.wrap_socket(plain) as secured,
        ):
            return secured.getpeercert(binary_form=True)
    except OSError:
        return None


def _first_of(text: str) -> bytes:
    """Return the first certificate of a PEM file."""
    begin = text.index("-----BEGIN CERTIFICATE-----")
    end = text.index(_END_OF_CERTIFICATE, begin)
    return ssl.PEM_cert_to_DER_cert(text[begin:end] + _END_OF_CERTIFICATE)


def _dates_of(certificate: bytes) -> Dates:
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(ssl.DER_cert_to_PEM_cert(certificate))
        file.flush()
        return _read_dates(file.name)


def _read_dates(path: str) -> Dates:
    # the one function of the standard library that reads the dates of a certificate
    decoded = ssl._ssl._test_decode_cert(path)  # type: ignore[attr-defined]
    begins_s, ends_s = (ssl.cert_time_to_seconds(decoded[key]) for key in ("notBefore", "notAfter"))
    return Dates(begins_s, ends_s)
