"""Repositories, disks, certificates and files with secrets."""

from __future__ import annotations

import os
import ssl
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton.findings import Finding, error, warning
from zmqtriton_floor.access import token_file
from zmqtriton_floor.access.token_file import TokenFileError

_DAY_S = 86400
#: Whoever renews it by hand needs some days.
_ENDS_SOON_S = 21 * _DAY_S
_LEAST_LOG_BYTES = 200 << 20
_LEAST_BYTES = 1 << 20
_END_OF_CERTIFICATE = "-----END CERTIFICATE-----"


class Place(NamedTuple):
    """The file system of a directory that there is or will be."""

    free_bytes: int
    is_writable: bool
    can_execute: bool


def read_place(path: str) -> Place:
    folder = Path(path).absolute()
    # not Path.is_dir(), which raises where looking is forbidden
    while not os.path.isdir(folder) and folder != folder.parent:
        folder = folder.parent
    system = os.statvfs(folder)
    return Place(
        system.f_bavail * system.f_frsize,
        os.access(folder, os.W_OK | os.X_OK),
        not system.f_flag & os.ST_NOEXEC,
    )


def judge_repositories(paths: Iterable[str]) -> Iterator[Finding]:
    for path in paths:
        if "://" in path:
            continue
        try:
            os.listdir(path)
        except OSError as problem:
            yield error(
                f"the model repository {path} cannot be used: {problem.strerror or problem}",
                "Name a directory that has a directory for each model, and that this user can "
                "read.",
                f"zmqtriton check {path}",
            )


def judge_log(path: str) -> Iterator[Finding]:
    if not path:
        return
    folder = os.path.dirname(os.path.abspath(path))
    place = read_place(folder)
    # the server makes no directory for it
    if not place.is_writable or not os.path.isdir(folder):
        yield error(
            f"the log cannot be written: {folder} is missing, or this user may not write there",
            "Correct the rights, or name another file with --log-file.",
            f"ls -ld {folder}",
        )
    elif place.free_bytes < _LEAST_LOG_BYTES:
        yield _full_disk(folder, place, "the log", "Lines are lost when it is full.")


def judge_temporary(folder: str) -> Iterator[Finding]:
    place = read_place(folder)
    if not place.is_writable:
        yield error(
            f"no runtime directory can be made: this user may not write to {folder}",
            "Name one with --runtime-directory, or a writable TMPDIR.",
            f"ls -ld {folder}",
        )
    elif place.free_bytes < _LEAST_BYTES:
        effect = "A server cannot start when it is full."
        yield _full_disk(folder, place, "runtime directories", effect)


def _full_disk(folder: str, place: Place, use: str, effect: str) -> Finding:
    return warning(
        f"the disk of {folder}, for {use}, has {place.free_bytes >> 20} MiB left",
        f"{effect} Free some of it.",
        f"df -h {folder}",
    )


def judge_certificates(options: Mapping[str, Any], now_s: float) -> Iterator[Finding]:
    for service in ("http", "grpc"):
        path = options.get(f"{service}-server-cert", "")
        if options.get(f"{service}-use-ssl") and path:
            key_path = options[f"{service}-server-key"]
            yield from _judge_certificate(f"--{service}-server-cert", path, key_path, now_s)
            yield from _judge_extensions(path, key_path, options.get(f"{service}-root-cert", ""))


def _judge_certificate(option: str, path: str, key_path: str, now_s: float) -> Iterator[Finding]:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path, key_path, password="")
        # the one function of the standard library that reads the dates of a file
        decoded = ssl._ssl._test_decode_cert(path)  # type: ignore[attr-defined]
        is_key_public = _is_public(key_path)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "reason", None) or getattr(problem, "strerror", None) or problem
        yield error(
            f"{option}: {path} and {key_path} cannot be used: {reason}",
            "The certificate and its key must belong together, in PEM form without a password, "
            "readable to the server's user.",
            f"ls -l {path} {key_path}",
        )
        return
    begins_s, ends_s = (ssl.cert_time_to_seconds(decoded[key]) for key in ("notBefore", "notAfter"))
    yield from _judge_dates(path, begins_s, ends_s, now_s)
    if is_key_public:
        yield warning(
            f"every user of this machine can read the key {key_path}",
            "Its owner can pretend to be this server.",
            f"chmod 600 {key_path}",
        )


def _judge_dates(path: str, begins_s: float, ends_s: float, now_s: float) -> Iterator[Finding]:
    certificate, look = f"the certificate {path}", f"openssl x509 -noout -dates -in {path}"
    if now_s >= ends_s:
        yield error(
            f"{certificate} has expired, {_date(ends_s)}",
            "Replace the files; the server reads them again by itself.",
            look,
        )
    elif now_s < begins_s:
        yield error(
            f"{certificate} is valid only from {_date(begins_s)}", "Is the clock right?", look
        )
    elif ends_s - now_s < _ENDS_SOON_S:
        days = int((ends_s - now_s) / _DAY_S)
        left = "today" if not days else f"in {days} day{'s' * (days != 1)}"
        yield warning(
            f"{certificate} expires {left}, {_date(ends_s)}",
            "Replace the files in time; the server reads them again by itself.",
            look,
        )


def _judge_extensions(path: str, key_path: str, root: str) -> Iterator[Finding]:
    """Judge what Python's clients have looked at since 3.13, and others not."""
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
        yield warning(
            f"clients of Python 3.13 and newer refuse the certificate {path}: {reason}",
            "Add that extension to the certificate, or to that of its authority.",
            f"openssl x509 -noout -text -in {path}",
        )


def _refusal(path: str, key_path: str, authorities: str, flags: int) -> str:
    """Return why a client refuses the certificate, "" if it takes it; without a socket."""
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


def _date(moment_s: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(moment_s))


def judge_secret_files(options: Mapping[str, Any]) -> Iterator[Finding]:
    path = options.get("tokens", "")
    if not path:
        return
    try:
        token_file.read(path)
        is_public = _is_public(path)
    except (TokenFileError, OSError) as problem:
        yield error(
            f"--tokens: {path} cannot be used: {problem}",
            "The server does not start with it.",
            f"ls -l {path}",
        )
        return
    if is_public:
        yield warning(
            f"every user of this machine can read {path}, the file of --tokens",
            "Its readers may learn who has access.",
            f"chmod 600 {path}",
        )


def _is_public(path: str) -> bool:
    return bool(os.stat(path).st_mode & stat.S_IROTH)
