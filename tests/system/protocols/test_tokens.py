"""Bearer tokens of a real server: what each opens over every protocol, and where none may stand."""

from __future__ import annotations

import http.client
import itertools
import json
import re
from collections.abc import Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from tests.frontends.http_api.fakes import FakeGateway
from tests.standard.ctl.system.commands import ctl
from tests.support import raw_http2 as h2
from tests.support.clients import infer_inputs
from tests.support.server import Server, free_ports
from tests.support.waiting import eventually
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import ALL_MODELS, Grant
from zmqtriton_frontends.http_api.app import routes
from zmqtriton_protos import SERVICES, message

pytestmark = pytest.mark.system

MODELS = ("add_sub", "told", "parrot")
SAGEMAKER, VERTEX = free_ports(2)
OPTIONS = (
    "--model-control-mode=explicit",
    "--load-model=*",
    "--allow-openai",
    "--log-verbose=1",
    "--grpc-reflection=true",
    "--allow-sagemaker=true",
    f"--sagemaker-port={SAGEMAKER}",
    "--allow-vertex-ai=true",
    f"--vertex-ai-port={VERTEX}",
    "--vertex-ai-default-model=add_sub",
)
ENVIRONMENT = {
    "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "add_sub",
    "AIP_PREDICT_ROUTE": "/predict",
    "AIP_HEALTH_ROUTE": "/health",
}
TOKENS = {
    name: f"zmqt_a-secret-of-{name}-0123456789"
    for name in ("infer", "control", "metrics", "some", "someone", "old", "short", "root", "slow")
}
GRANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "infer": ("infer", ALL_MODELS),
    "control": ("control", ALL_MODELS),
    "metrics": ("metrics", ALL_MODELS),
    "some": ("infer", ("add*",)),
    "someone": ("infer,control,metrics", ("add*",)),
    "old": ("infer", ALL_MODELS),
    "short": ("infer", ALL_MODELS),
    "root": ("infer,control,metrics", ALL_MODELS),
    # one inference, and the next after a thousand seconds
    "slow": ("infer", ALL_MODELS),
}
ONES = np.ones((1, 16), np.float32)
MISSING = "This server needs a token, expecting header 'Authorization: Bearer TOKEN'"
NOT_THIS_MODEL = (
    "The token is not for this model; its line in the token file needs the name in models"
)


def write_tokens(path: Path, *left_out: str) -> None:
    new = path.with_suffix(".new")
    lines = []
    for name, (scopes, models) in GRANTS.items():
        day, rate = date(2020, 2, 29) if name == "old" else None, 0.001 if name == "slow" else 0.0
        digest = token_file.Grant.digest_of(TOKENS[name])
        grant = Grant(name, digest, token_file.parse_scopes(scopes), models, day, rate)
        lines += [] if name in left_out else [grant.line() + "\n"]
    new.write_text("".join(lines))
    new.chmod(0o600)
    new.replace(path)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("tokens")
    write_tokens(directory / "tokens")
    options = [f"--tokens={directory / 'tokens'}", f"--runtime-directory={directory / 'run'}"]
    server = Server(directory / "s", MODELS, options=[*OPTIONS, *options], environment=ENVIRONMENT)
    with server:
        yield server


@pytest.fixture(scope="module")
def forwarding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Another server, with grpcio, that gives models all headers, and no fast path thereby."""
    directory = tmp_path_factory.mktemp("forwarding")
    write_tokens(directory / "tokens")
    patterns = [f"--{service}-header-forward-pattern=.*" for service in ("http", "grpc")]
    options = [f"--tokens={directory / 'tokens'}", "--grpc-transport=grpcio", *patterns]
    with Server(directory / "s", MODELS[:2], options=options) as server:
        yield server


_SOURCES = (f"127.0.1.{number}" for number in itertools.count(1))


class Client:
    """A client with an address of its own, so that nobody waits for others' wrong tokens."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(
            "127.0.0.1", port, timeout=60, source_address=(next(_SOURCES), 0)
        )
        self.headers: dict[str, str] = {}

    def ask(
        self, method: str, path: str, *headers: tuple[str, str], body: bytes = b""
    ) -> tuple[int, Any]:
        """Return the status, and the error or the text."""
        self._connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self._connection.putheader(name, value.encode())
        self._connection.endheaders(body)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, (json.loads(text) if text[:1] == "{" else {}).get("error", text)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    client = Client(server.http_port)
    yield client
    client.close()


def bearer(name: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {TOKENS[name]}"


def infer_body(values: int = 1) -> bytes:
    entry = {"datatype": "FP32", "shape": [1, 16], "data": [values] * 16}
    inputs = [{"name": name, **entry} for name in ("INPUT0", "INPUT1")]
    return json.dumps({"inputs": inputs}).encode()


# ------------------------------------------------------------------------- HTTP

#: By category, the tokens that open its routes, of those for all models.
_OPENED_BY = {
    "metadata": ("infer", "control", "metrics"),
    "model-config": ("infer", "control", "metrics"),
    "statistics": ("infer", "control", "metrics"),
    "inference": ("infer",),
    "shared-memory": ("infer",),
    "model-repository": ("control",),
    "trace": ("control",),
    "logging": ("control",),
}
_PROBES = ("/v2/health/live", "/v2/health/ready", "/health", "/health/ready")
_ALWAYS_OPEN = (*_PROBES, "/", "/docs", "/pages/{file:name}")


def _closed_routes() -> list[tuple[str, str, tuple[str, ...]]]:
    """(method, path of a model that is not there, tokens) of each route that needs one."""
    cases = []
    for row in routes(FakeGateway(allow_openai=True)):
        path = row.path
        for name, value in (("model:name", "x"), ("version:number", "1"), ("region:name", "r")):
            path = path.replace(f"{{{name}}}", value)
        path = path.replace("{repository}", "main")
        category = row.general_category or row.category
        opened_by = _OPENED_BY.get(category, ("control",))
        if path.endswith("/index") or category == "health":
            opened_by = _OPENED_BY["metadata"]
        # of a path that is there for some names, none of these is one
        if row.path not in _ALWAYS_OPEN and row.is_there is None:
            cases.append((row.method, path, opened_by))
    return cases


@pytest.mark.row("L09")
def test_every_route_is_closed_and_opened_by_its_scope(client: Client) -> None:
    table = _closed_routes()
    assert len(table) > 35

    for method, path, opened_by in table:
        for other in (method, "OPTIONS", "DELETE", "HEAD"):
            status, text = client.ask(other, path)
            assert (401, path) == (status, path)
            assert "Bearer" == client.headers["www-authenticate"]
            assert other == "HEAD" or MISSING == _message(text)
        for name in ("infer", "control", "metrics"):
            status, text = client.ask(method, path, bearer(name))
            assert (name in opened_by) == (status not in (401, 403)), (name, path, status, text)
            if status == 403:
                assert f"expecting scope '{opened_by[0]}'" in _message(text)
                assert f'scope="{opened_by[0]}"' in client.headers["www-authenticate"]


def _message(error: Any) -> str:
    """The text of an error in Triton's form, or in OpenAI's."""
    return str(error["message"] if isinstance(error, dict) else error)


@pytest.mark.row("L09")
def test_balancers_and_browsers_need_no_token(client: Client, server: Server) -> None:
    for path in (*_PROBES, "/docs", "/pages/api.js"):
        assert 200 == client.ask("GET", path)[0]
    for method in ("ServerLive", "ServerReady"):
        assert None is call(server, _SERVICE, method)
    assert None is call(server, "grpc.health.v1.Health", "Check")


@pytest.mark.row("L09")
def test_a_token_for_some_models_sees_no_others(client: Client, server: Server) -> None:
    some, someone = bearer("some"), bearer("someone")
    names = {"told", "parrot"}

    for method, path in (
        ("POST", "/v2/repository/index"),
        ("GET", "/v2/models/stats"),
        ("GET", "/v2/load"),
        ("GET", "/v1/models"),
        ("GET", "/openapi.json"),
    ):
        status, text = client.ask(method, path, some)
        assert (200, True) == (status, "add_sub" in str(text))
        assert not any(f'"{name}"' in str(text) for name in names), path
        assert all(
            f'"{name}"' in str(client.ask(method, path, bearer("root"))[1]) for name in names
        )
    status, text = client.ask("GET", "/v2/zmqtriton/status", some)
    shown = json.dumps(text)
    assert (200, True) == (status, "add_sub" in shown)
    assert not any(each in shown for each in (*names, str(server.directory), "127.0.0.1"))
    for name in ("told", "not-there"):
        for path in ("", "/ready", "/config", "/stats", "/versions/1"):
            assert (403, NOT_THIS_MODEL) == client.ask("GET", f"/v2/models/{name}{path}", some)
        for verb in ("infer", "generate", "generate_stream", "infer_stream"):
            path = f"/v2/models/{name}/{verb}"
            assert (403, NOT_THIS_MODEL) == client.ask("POST", path, some, body=infer_body())
        assert 403 == client.ask("GET", f"/v1/models/{name}", some)[0]
        for verb in ("load", "unload"):
            path = f"/v2/repository/models/{name}/{verb}"
            assert (403, NOT_THIS_MODEL) == client.ask("POST", path, someone)

    assert 200 == client.ask("GET", "/v2/models/add_sub/ready", some)[0]
    assert 200 == client.ask("POST", "/v2/models/add_sub/infer", some, body=infer_body())[0]
    assert 200 == client.ask("POST", "/v2/repository/models/add_sub/load", someone)[0]
    eventually(lambda: "load 'add_sub' for token 'someone' of 127." in server.log_text(), 60)
    assert 200 == client.ask("GET", "/v2/models/add_sub/trace/setting", someone)[0]
    for path in ("/v2/trace/setting", "/v2/logging"):
        status, text = client.ask("GET", path, someone)
        assert (403, True) == (status, text.endswith("use a token for all models"))
    dependents = json.dumps({"parameters": {"unload_dependents": True}}).encode()
    path = "/v2/repository/models/add_sub/unload"
    assert 403 == client.ask("POST", path, someone, body=dependents)[0]


@pytest.mark.row("L09")
def test_metrics_need_a_token_of_their_scope(server: Server) -> None:
    page = Client(server.metrics_port)

    for name, status in (("metrics", 200), ("root", 200), ("infer", 403), ("someone", 403)):
        answer = page.ask("GET", "/metrics", bearer(name))
        assert (status, status == 200) == (answer[0], "nv_inference" in str(answer[1])), name
    assert (401, MISSING) == page.ask("GET", "/metrics")
    assert "Bearer" == page.headers["www-authenticate"]
    twice = bearer("metrics")
    assert 401 == page.ask("GET", "/metrics", twice, twice)[0]
    page.close()


@pytest.mark.row("L09")
def test_endpoints_of_clouds_need_a_token_too(server: Server) -> None:
    sagemaker, vertex = Client(SAGEMAKER), Client(VERTEX)
    to = "X-Vertex-Ai-Triton-Redirect"

    assert 200 == sagemaker.ask("GET", "/ping")[0]
    for path in ("/invocations", "/models/x/invoke"):
        assert (401, MISSING) == sagemaker.ask("POST", path, body=infer_body())
        assert "Bearer" == sagemaker.headers["www-authenticate"]
    assert 401 == sagemaker.ask("GET", "/models")[0]
    assert 404 == sagemaker.ask("POST", "/models/x/invoke", bearer("infer"))[0]
    assert 200 == sagemaker.ask("GET", "/models", bearer("control"))[0]

    assert (401, MISSING) == vertex.ask("POST", "/predict", body=infer_body())
    assert 200 == vertex.ask("POST", "/predict", bearer("infer"), body=infer_body())[0]
    assert 200 == vertex.ask("GET", "/health")[0]
    assert (401, MISSING) == vertex.ask("POST", "/predict", (to, "metrics"))
    assert 403 == vertex.ask("POST", "/predict", (to, "metrics"), bearer("infer"))[0]
    assert 200 == vertex.ask("POST", "/predict", (to, "metrics"), bearer("metrics"))[0]
    assert 401 == vertex.ask("POST", "/predict", (to, "v2/repository/index"))[0]
    sagemaker.close()
    vertex.close()


# ------------------------------------------------------------------------- gRPC

_SERVICE = "inference.GRPCInferenceService"


def call(server: Server, service: str, method: str, *metadata: tuple[str, str]) -> Any:
    """(status, details); None where the call went well, or failed for other reasons."""
    with grpc.insecure_channel(server.grpc_address) as channel:
        path = f"/{service}/{method}"
        try:
            if method in ("ModelStreamInfer", "ServerReflectionInfo"):
                list(channel.stream_stream(path)(iter([b""]), timeout=60, metadata=metadata))
            else:
                channel.unary_unary(path)(b"", timeout=60, metadata=metadata)
        except grpc.RpcError as error:
            code = error.code().name
            return (code, error.details()) if code in _REFUSALS else None
    return None


_REFUSALS = ("UNAUTHENTICATED", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED")
_SCOPE_OF_RPC = {
    **dict.fromkeys(("ModelInfer", "ModelStreamInfer"), "infer"),
    **{
        f"{kind}SharedMemory{verb}": "infer"
        for kind in ("System", "Cuda")
        for verb in ("Status", "Register", "Unregister")
    },
    **dict.fromkeys(("RepositoryModelLoad", "RepositoryModelUnload"), "control"),
    **dict.fromkeys(("TraceSetting", "LogSettings"), "control"),
}


@pytest.fixture(
    scope="module",
    params=[
        "server",
        pytest.param(
            "forwarding",
            marks=pytest.mark.long(
                "system/protocols/test_tokens.py::test_every_rpc_is_closed_and_opened_by_its_scope"
            ),
        ),
    ],
)
def target(request: pytest.FixtureRequest) -> Server:
    """Return a server with our transport of gRPC, and one with grpcio's."""
    return request.getfixturevalue(request.param)


@pytest.mark.row("L09")
def test_every_rpc_is_closed_and_opened_by_its_scope(target: Server) -> None:
    closed = [(_SERVICE, rpc.name) for rpc in SERVICES[_SERVICE]]
    closed = [row for row in closed if row[1] not in ("ServerLive", "ServerReady")]
    assert len(closed) > 16
    if "--grpc-reflection=true" in target.command:
        closed.append(("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo"))

    for service, method in closed:
        assert ("UNAUTHENTICATED", MISSING) == call(target, service, method), method
        scope = _SCOPE_OF_RPC.get(method, "any")
        text = f"The token is not good for this, expecting scope '{scope}'"
        for name in ("infer", "control", "metrics"):
            pair = ("authorization", f"Bearer {TOKENS[name]}")
            refused = None if scope in ("any", name) else ("PERMISSION_DENIED", text)
            assert refused == call(target, service, method, pair), (method, name)


def test_of_a_large_message_nobody_without_a_token_sends_the_rest(server: Server) -> None:
    for method in ("ModelInfer", "RepositoryModelLoad"):
        with h2.Connection(server.grpc_port) as connection:
            begun = h2.data_frame(1, b"x" * 1000, length=1 << 30)
            connection.send(h2.headers_frame(1, f"/{_SERVICE}/{method}"), begun)

            assert b"This server needs a token" in connection.read_until(b"grpc-message")


@pytest.mark.row("L09")
def test_a_stream_is_for_the_models_of_its_token(target: Server) -> None:
    headers = {"authorization": f"Bearer {TOKENS['some']}"}
    errors: list[Any] = []

    with grpc_client.InferenceServerClient(target.grpc_address) as client:
        inputs = infer_inputs(grpc_client, INPUT0=ONES, INPUT1=ONES)
        client.start_stream(lambda result, error: errors.append(error), headers=headers)
        for model in ("add_sub", "told", "add_sub"):
            client.async_stream_infer(model, inputs)
        eventually(lambda: len(errors) == 3, 60)
        client.stop_stream()

    assert [True, False, True] == [error is None for error in errors]
    assert NOT_THIS_MODEL in str(errors[1])


def test_over_grpc_too_there_is_one_token_and_many_wrong_ones_wait(target: Server) -> None:
    right = ("authorization", f"Bearer {TOKENS['root']}")
    only_one = "UNAUTHENTICATED", "Only one token may be presented"

    for other in (right, ("authorization", "Basic x")):
        # after the wrong tokens of other tests this client may have to wait for a while
        ask_both = partial(call, target, _SERVICE, "ServerMetadata", right, other)
        eventually(lambda ask_both=ask_both: only_one == ask_both(), 60)  # type: ignore[misc]
    ask = (target.grpc_port, f"/{_SERVICE}/ServerMetadata", b" token", next(_SOURCES))
    answers = [h2.ask(*ask, authorization="Bearer " + "x" * 6000) for _ in range(30)]
    assert {False, True} == {b"Too many wrong" in answer for answer in answers}
    assert None is call(target, _SERVICE, "ServerMetadata", right)


def _counts(server: Server) -> dict[str, float]:
    """Return the metrics of the slow token."""
    page = Client(server.metrics_port)
    _, text = page.ask("GET", "/metrics", bearer("metrics"))
    page.close()
    rows = re.findall(r'^zmqtriton_token_(\w+)_total\{token="slow"\} (\S+)$', text, re.MULTILINE)
    return {name: float(value) for name, value in rows}


def test_a_token_has_one_rate_over_both_protocols_and_metrics_by_its_name(
    server: Server, client: Client
) -> None:
    assert {} == _counts(server)

    ask = partial(client.ask, "POST", "/v2/models/add_sub/infer", bearer("slow"), body=infer_body())
    assert ([200, 429], "1") == ([ask()[0], ask()[0]], client.headers["retry-after"])
    with grpc_client.InferenceServerClient(server.grpc_address) as over_grpc:
        inputs = infer_inputs(grpc_client, INPUT0=ONES, INPUT1=ONES)
        with pytest.raises(InferenceServerException, match=r"0\.001 times a second") as refused:
            over_grpc.infer("add_sub", inputs, headers={"authorization": bearer("slow")[1]})
    assert "StatusCode.RESOURCE_EXHAUSTED" == refused.value.status()
    assert {"requests": 1.0, "refused": 2.0} == _counts(server)


# ------------------------------------------------------------- what is not told


@pytest.mark.row("L09")
def test_tokens_stand_in_no_log_status_or_command_line(server: Server, client: Client) -> None:
    client.ask("GET", "/v2", bearer("root"))
    client.ask("GET", "/v2/logging", bearer("infer"))
    client.ask("GET", "/v2", ("Authorization", "Bearer zmqt_wrong-one"))
    words = ("status", "--json"), ("logs",)
    shown = [ctl(server, *each).stdout.encode() for each in words] + [server.log.read_bytes()]
    for pid in (pid for own in server.pids().values() for pid in own):
        shown += [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")]

    secrets = [*TOKENS.values(), "zmqt_wrong-one"]
    secrets += [token_file.Grant.digest_of(token).hex() for token in TOKENS.values()]

    assert not [secret for secret in secrets for text in shown if secret.encode() in text]


# ---------------------------------------------------------------------- the file


@pytest.mark.row("L09")
def test_a_token_that_is_removed_opens_nothing_more_even_on_an_open_connection(
    server: Server, client: Client
) -> None:
    path, infer = server.directory.parent / "tokens", "/v2/models/add_sub/infer"
    pair = ("authorization", f"Bearer {TOKENS['short']}")
    channel = grpc.insecure_channel(server.grpc_address)
    request = message("inference.ServerMetadataRequest")().SerializeToString()
    metadata_rpc = channel.unary_unary(f"/{_SERVICE}/ServerMetadata")

    def statuses() -> tuple[int, str]:
        # the same bytes each time, which the server need not look at again
        status = client.ask("POST", infer, bearer("short"), body=infer_body())[0]
        try:
            metadata_rpc(request, metadata=[pair], timeout=60)
        except grpc.RpcError as error:
            return status, error.code().name
        return status, "OK"

    try:
        assert (200, "OK") == statuses()

        write_tokens(path, "short")
        eventually(lambda: statuses()[0] != 200 and statuses()[1] != "OK", 30)
        assert 200 == client.ask("POST", infer, bearer("infer"), body=infer_body())[0]

        path.write_text(path.read_text() + "a line that is wrong\n")
        eventually(lambda: "the tokens are those of before: line" in server.log_text(), 30)
        assert 200 == client.ask("POST", infer, bearer("infer"), body=infer_body())[0]

        write_tokens(path)
        eventually(lambda: (200, "OK") == statuses(), 30)
    finally:
        channel.close()
        write_tokens(path)
