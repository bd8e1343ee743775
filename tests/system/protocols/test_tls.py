"""HTTPS and encrypted gRPC of a real server: who gets in, what gets through, what is renewed."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

from tests.support import raw_http2 as h2
from tests.support.certificates import Authority, CertificatePair
from tests.support.clients import infer_inputs
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_LARGE = 4 << 20
_SERVICE = "/inference.GRPCInferenceService"
_LIVE = f"{_SERVICE}/ServerLive"
_PREFACE = h2.PREFACE + h2.settings_frame({})


class TlsServer(Server):
    """A server whose ports are encrypted; asked with the client's certificate."""

    def __init__(self, directory: Path, *, mutual: bool, transport: str = "native") -> None:
        self.authority = Authority(directory / "certificates")
        first = self.authority.issue("first")
        self.pair = CertificatePair(directory / "server.crt", directory / "server.key")
        self.install(first)
        self.client_pair = self.authority.issue("client")
        switch = "use-ssl-mutual" if mutual else "use-ssl"
        options = [f"--{service}-{switch}=true" for service in ("http", "grpc")]
        options.append(f"--grpc-transport={transport}")
        for service in ("http", "grpc"):
            options += [
                f"--{service}-server-cert={self.pair.cert}",
                f"--{service}-server-key={self.pair.key}",
                f"--{service}-root-cert={self.authority.cert}",
            ]
        super().__init__(
            directory / "s", models=["identity_fp32"], options=options, frontends=("grpc",)
        )
        self.url = self.url.replace("http:", "https:")
        self.context = self.make_context(self.client_pair)

    def install(self, pair: CertificatePair) -> None:
        for source, target in zip(pair, self.pair, strict=True):
            shutil.copy(source, target.with_suffix(".new"))
            target.with_suffix(".new").replace(target)

    def make_context(self, pair: CertificatePair | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.cert))
        if pair is not None:
            context.load_cert_chain(*pair)
        return context

    def status(self, path: str) -> int:
        try:
            with urllib.request.urlopen(
                f"{self.url}{path}", timeout=30, context=self.context
            ) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError as error:
            if isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
                raise  # it will not come to be valid by waiting
            return 0

    def connect(self, context: ssl.SSLContext | None = None) -> http.client.HTTPSConnection:
        context = context or self.context
        return http.client.HTTPSConnection("127.0.0.1", self.http_port, timeout=30, context=context)

    def grpc_credentials(self, pair: CertificatePair | None) -> grpc.ChannelCredentials:
        own = {}
        if pair is not None:
            own = {
                "private_key": pair.key.read_bytes(),
                "certificate_chain": pair.cert.read_bytes(),
            }
        return grpc.ssl_channel_credentials(self.authority.cert.read_bytes(), **own)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    with TlsServer(tmp_path_factory.mktemp("tls"), mutual=False) as running:
        yield running


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    with TlsServer(tmp_path_factory.mktemp("mutual"), mutual=True) as running:
        yield running


def _echo(
    connection: http.client.HTTPSConnection,
    data: np.ndarray[Any, Any],
    before_reading: Callable[[http.client.HTTPResponse], None] = lambda answer: None,
) -> bytes:
    """Return what the identity model answers, in binary."""
    document = {
        "inputs": [
            {
                "name": "INPUT0",
                "datatype": "FP32",
                "shape": list(data.shape),
                "parameters": {"binary_data_size": data.nbytes},
            }
        ],
        "parameters": {"binary_data_output": True},
    }
    head = json.dumps(document).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    connection.request("POST", "/v2/models/identity_fp32/infer", head + data.tobytes(), headers)
    answer = connection.getresponse()
    before_reading(answer)
    body = answer.read()
    assert 200 == answer.status, body
    return body[int(answer.headers["Inference-Header-Content-Length"]) :]


def test_bodies_of_all_sizes_get_through_both_ways(server: TlsServer) -> None:
    with_one_connection = server.connect()
    random = np.random.default_rng(1)

    for count in (1, 16 << 10, 5, _LARGE, 100_000, 1):
        data = random.random(count, dtype=np.float32)
        assert data.tobytes() == _echo(with_one_connection, data)
    with_one_connection.close()


@pytest.mark.row("L09")
def test_tritonclient_speaks_https(server: TlsServer) -> None:
    data = np.arange(8, dtype=np.float32)
    [tensor] = infer_inputs(http_client, INPUT0=data)

    with http_client.InferenceServerClient(
        f"127.0.0.1:{server.http_port}",
        ssl=True,
        ssl_options={"ca_certs": str(server.authority.cert)},
        ssl_context_factory=lambda: server.context,
    ) as client:
        result = client.infer("identity_fp32", [tensor])

    assert data.tolist() == result.as_numpy("OUTPUT0").tolist()


@pytest.mark.row("D42", "--grpc-use-ssl", "--grpc-server-cert", "--grpc-server-key")
def test_tritonclient_speaks_encrypted_grpc(server: TlsServer) -> None:
    data = np.arange(_LARGE, dtype=np.float32)
    [tensor] = infer_inputs(grpc_client, INPUT0=data)

    with grpc_client.InferenceServerClient(
        server.grpc_address, ssl=True, root_certificates=str(server.authority.cert)
    ) as client:
        result = client.infer("identity_fp32", [tensor])

    assert data.tobytes() == result.as_numpy("OUTPUT0").tobytes()


@pytest.mark.parametrize("port", ["http_port", "grpc_port"])
def test_versions_below_1_2_are_refused(server: TlsServer, port: str) -> None:
    def version(limit: ssl.TLSVersion) -> str | None:
        context = server.make_context(None)
        # Else this side would refuse first.
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.set_alpn_protocols(["h2", "http/1.1"])
        context.minimum_version = context.maximum_version = limit
        with (
            socket.create_connection(("127.0.0.1", getattr(server, port)), 20) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            return secured.version()

    assert "TLSv1.2" == version(ssl.TLSVersion.TLSv1_2)
    assert "TLSv1.3" == version(ssl.TLSVersion.TLSv1_3)
    with (
        pytest.warns(DeprecationWarning, match=r"TLSv1_1 is deprecated"),
        pytest.raises(OSError, match=r"(?i)alert|protocol|eof|reset"),
    ):
        version(ssl.TLSVersion.TLSv1_1)


def _read_to_the_end(connection: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionResetError):
        for part in iter(lambda: connection.recv(4096), b""):
            received += part
    return received


@pytest.mark.parametrize("port", ["http_port", "grpc_port"])
def test_what_is_not_encrypted_ends_at_once(server: TlsServer, port: str) -> None:
    for text in (
        b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\0" * 64,
        b"\x16\x03\x01",
    ):
        with socket.create_connection(("127.0.0.1", getattr(server, port)), 60) as plain:
            plain.sendall(text)
            plain.shutdown(socket.SHUT_WR)
            assert b"200" not in _read_to_the_end(plain)
        assert 200 == server.status("/v2/health/live")
    assert "Traceback" not in server.log_text()


@pytest.mark.parametrize("closes", [False, True])
def test_a_client_without_tls_is_told_what_to_do(server: TlsServer, closes: bool) -> None:
    head = (
        "POST /v2/models/identity_fp32/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.http_port), 60) as plain:
        plain.sendall(head.encode() + bytes(100_000))
        if closes:
            plain.shutdown(socket.SHUT_WR)
        answer = http.client.HTTPResponse(plain)
        answer.begin()

        document = json.loads(answer.read())

    assert (400, "close") == (answer.status, answer.headers["Connection"])
    assert {"error": "this port speaks TLS: use https://"} == document


@pytest.mark.row("D42")
def test_a_grpc_client_without_tls_is_told_what_to_do(server: TlsServer) -> None:
    text = "this port speaks TLS: use a secure channel (with tritonclient: ssl=True)"
    with grpc.insecure_channel(server.grpc_address) as channel:
        ask = channel.unary_unary(f"{_SERVICE}/ModelInfer")
        converse = channel.stream_stream(f"{_SERVICE}/ModelStreamInfer")

        at_once = [ask.future(b"", timeout=20, wait_for_ready=True) for _ in range(20)]
        refused = [*at_once, ask.future(bytes(9_000_000), timeout=20)]
        refused.append(converse(iter([b""] * 3), timeout=20))
        errors = [call.exception() for call in refused]

    assert {(grpc.StatusCode.UNAVAILABLE, text)} == {(e.code(), e.details()) for e in errors}


def test_a_handshake_that_never_comes_is_not_waited_for(server: TlsServer) -> None:
    openings = [
        (server.http_port, b"", []),
        (server.grpc_port, b"", []),
        (server.grpc_port, h2.PREFACE, []),
        (server.grpc_port, _PREFACE + h2.headers_frame(1, _LIVE), [b"this port speaks TLS"]),
    ]
    silent = [socket.create_connection(("127.0.0.1", port), 60) for port, *_ in openings]
    for connection, (_, first, _) in zip(silent, openings, strict=True):
        connection.sendall(first)

    assert 200 == server.status("/v2/health/live")
    assert _secure_caller(server, None)
    for connection, (*_, texts) in zip(silent, openings, strict=True):
        with connection:
            assert texts == re.findall(b"this port speaks TLS", _read_to_the_end(connection))


def _secure_peer(server: TlsServer, pair: CertificatePair | None) -> bool:
    """Return True if a client with this certificate gets an answer over HTTPS."""
    connection = server.connect(server.make_context(pair))
    try:
        connection.request("GET", "/v2/health/live")
        return connection.getresponse().status == 200
    except (ssl.SSLError, ConnectionError, http.client.BadStatusLine):
        return False
    finally:
        connection.close()


def _secure_caller(server: TlsServer, pair: CertificatePair | None) -> bool:
    """The same over gRPC."""
    with grpc.secure_channel(server.grpc_address, server.grpc_credentials(pair)) as channel:
        call = channel.unary_unary(_LIVE)
        try:
            return bytes(call(b"", timeout=20)) == b"\x08\x01"
        except grpc.RpcError as error:
            return error.code() is not grpc.StatusCode.UNAVAILABLE


@pytest.mark.row("D42", "L09", "--grpc-use-ssl-mutual", "--grpc-root-cert")
def test_with_mutual_tls_only_clients_of_the_authority_get_in(
    mutual: TlsServer, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger").issue("client")

    for gets_in in (_secure_peer, _secure_caller):
        assert gets_in(mutual, mutual.client_pair)
        assert not gets_in(mutual, None)
        assert not gets_in(mutual, stranger)
    assert 200 == mutual.status("/v2/health/ready")


def _serial(server: TlsServer, port: int) -> str:
    """The number of the certificate that is shown on a port."""
    context = server.make_context(server.client_pair)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", port), 20) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        return str(secured.getpeercert()["serialNumber"])  # type: ignore[index]


@pytest.mark.parametrize(
    "first",
    [
        "cert",
        pytest.param(
            "key",
            marks=pytest.mark.long(
                "system/protocols/test_tls.py::test_a_renewed_certificate_is_taken_and_no_connection_is_lost",
                "frontends/process/test_peer_user.py::test_while_certificate_and_key_do_not_fit_the_ones_before_serve",
            ),
        ),
    ],
)
@pytest.mark.row("L09")
def test_a_renewed_certificate_is_taken_and_no_connection_is_lost(
    mutual: TlsServer, first: str
) -> None:
    ports = (mutual.http_port, mutual.grpc_port)
    before = [_serial(mutual, port) for port in ports]
    connection = mutual.connect()
    _echo(connection, np.zeros(4, dtype=np.float32))
    start = len(mutual.log_text())

    # One file alone first: for a moment the two do not fit.
    renewed = mutual.authority.issue(f"renewed-{first}")
    shutil.copy(getattr(renewed, first), getattr(mutual.pair, first))
    for service in ("http", "grpc"):
        text = f"the certificate of {service} has changed and cannot be used"
        eventually(lambda text=text: text in mutual.log_text()[start:], 60)  # type: ignore[misc]
    for _ in range(3):
        assert before == [_serial(mutual, port) for port in ports]
    mutual.install(renewed)

    for port, old in zip(ports, before, strict=True):
        eventually(lambda port=port, old=old: _serial(mutual, port) != old, 60)  # type: ignore[misc]
    first_socket = connection.sock
    assert bytes(16) == _echo(connection, np.zeros(4, dtype=np.float32))
    assert connection.sock is first_socket
    connection.close()
    assert _secure_caller(mutual, mutual.client_pair)
