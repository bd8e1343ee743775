"""Disks, files with secrets, certificates, Pythons of models and their variables."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.diagnosis.doctor.findings import MIB, disk, lacking, model, only, texts, write
from tests.support.certificates import Authority, CertificatePair
from zmqtriton.diagnosis.rules import certificates, files, servers
from zmqtriton.findings import Finding
from zmqtriton_standard.environments import findings as environments

pytestmark = pytest.mark.slow


def test_a_file_of_tokens_that_all_can_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.touch(mode=0o644)
    options = {"tokens": str(path)}
    public = only(files.judge_secret_files(options))
    path.chmod(0o600)
    private = texts(files.judge_secret_files(options))
    path.unlink()

    assert "warning: every user of this machine can read" in public
    assert [] == private
    assert "error: --tokens:" in only(files.judge_secret_files(options))


# ---------------------------------------------------------------------- disks


def test_a_log_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk(monkeypatch)
    well = texts(files.judge_log(f"{tmp_path}/server.log"))
    disk(monkeypatch, free=5 * MIB)

    text = only(files.judge_log(f"{tmp_path}/server.log"))

    assert [] == well
    assert f"warning: the disk of {tmp_path}, for the log, has 5 MiB left" == text


def test_a_log_that_is_gone_is_told_where_its_descriptor_cannot_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", refuse)
    log = tmp_path / "server.log"

    assert "the log is lost: " in only(files.judge_log(str(log), pid=1))
    log.touch()
    assert not any("lost" in text for text in texts(files.judge_log(str(log), pid=1)))


def test_a_place_for_runtime_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk(monkeypatch)
    well = texts(files.judge_temporary(lambda: tmp_path))
    disk(monkeypatch, free=0)
    full = only(files.judge_temporary(lambda: tmp_path))

    def find_none() -> Path:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    none = only(files.judge_temporary(find_none))

    assert [] == well
    assert f"warning: the disk of {tmp_path}, for runtime directories, has 0 MiB left" == full
    assert "error: no runtime directory can be made: No usable temporary directory found" == none


@pytest.mark.parametrize(
    ("flags", "free", "expected"),
    [
        (0, 2 << 30, ""),
        (0, 5 * MIB, "warning: the disk of {} has 5 MiB left"),
        (os.ST_NOEXEC, 2 << 30, "{} environments of models cannot run from {}: it is mounted no"),
    ],
)
def test_a_cache_of_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int, free: int, expected: str
) -> None:
    repository = tmp_path / "models"
    options = {"environment-directory": str(tmp_path / "cache"), "build-environments": True}
    write(model(repository, "built") / "requirements.txt", "numpy\n")
    disk(monkeypatch, free, f_flag=flags)

    with_one = texts(environments.judge_cache([str(repository)], options))
    without = texts(environments.judge_cache([], options))

    path = options["environment-directory"]
    for severity, judged in (("error:", with_one), ("note:", without)):
        places = (severity, path) if flags else (path,)
        assert [text[: len(expected.format(*places))] for text in judged] == (
            [expected.format(*places)] if expected else []
        )


def test_a_cache_that_is_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    text = only(environments.judge_cache([], {"environment-directory": str(tmp_path)}))

    assert f"note: environments of models cannot be kept in {tmp_path}: this user may" in text


# ---------------------------------------------------------------------- models


@pytest.mark.row("L13")
def test_pythons_that_models_lack(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    old = tmp_path / "old"
    for path in (old / "bin/activate", old / "bin/python", old / "lib/python3.7/site.py"):
        write(path, "")
    (old / "bin/python").chmod(0o755)
    model(repository, "fine")
    model(repository, "aged", "EXECUTION_ENV_PATH", str(old))
    model(repository, "gone", "EXECUTION_ENV_PATH", "/nowhere/env.tar.gz")
    model(repository, "missing", "PYTHON_EXECUTABLE", "python3.99")
    write(repository / "torn" / "config.pbtxt", "name: [")
    (repository / "void").mkdir()

    judged = texts(environments.judge_pythons([str(repository)], {}))

    assert "is Python 3.7; models need 3.8 or newer" in judged[0]
    assert [] == lacking(
        judged,
        "error: model aged has no usable Python",
        "model gone has no usable Python: Failed to get the canonical path",
        "PYTHON_EXECUTABLE 'python3.99': there is no such interpreter",
        "error: model torn cannot be loaded: ",
        "error: model void cannot be loaded: ",
    )


def test_uv_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "models"
    write(model(repository, "built") / "requirements.txt", "numpy\n")
    options = {"build-environments": True}
    well = texts(environments.judge_pythons([str(repository)], options))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    text = only(environments.judge_pythons([str(repository)], options))

    assert [] == well
    assert "error: uv is missing, which builds the environments of built" == text


@pytest.mark.parametrize(
    ("names", "expected", "command"),
    [
        (
            [],
            "models get all variables of the environment but the server's own",
            "zmqtriton --model-env=NAME ...",
        ),
        (
            ["DATABASE_URL", "APP_*"],
            "models get only the variables that libraries need and those that --model-env names: "
            "DATABASE_URL, APP_*",
            "zmqtriton --model-env=DATABASE_URL '--model-env=APP_*' ...",
        ),
        (
            ["*"],
            "models get all variables of the environment, the server's own, too (--model-env=*)",
            "zmqtriton-ctl config",
        ),
    ],
)
def test_which_variables_models_get_is_said(names: list[str], expected: str, command: str) -> None:
    (finding,) = servers.judge_variables({"model-env": names})

    assert [f"note: {expected}"] == texts([finding])
    assert (command,) == finding.commands
    assert [] == texts(servers.judge_variables({})), "an older server does not say"


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
