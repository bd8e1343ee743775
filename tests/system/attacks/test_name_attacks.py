"""Names with a meaning in a shell, a path, a terminal or a metrics page are only names.

And configurations that ask for too much are refused while others are served.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.process_memory import peak_mib
from tests.support.raw_http import raw_request, send_raw
from tests.support.server import Server, tensor
from tests.support.waiting import eventually
from zmqtriton_protos import message

_SERVICE = "/inference.GRPCInferenceService/"
_TENSOR = {"data_type": "TYPE_FP32", "dims": [1]}
CONFIG: dict[str, Any] = {
    "name": "victim",
    "backend": "python",
    "input": [{"name": "INPUT0", **_TENSOR}],
    "output": [{"name": "OUTPUT0", **_TENSOR}],
}


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=("identity_fp32",), load=("identity_fp32",)),
]


def prepare(server: Server) -> None:
    victim = server.repository / "victim" / "1"
    victim.mkdir(parents=True)
    model = server.repository / "identity_fp32" / "1" / "model.py"
    (victim / "model.py").write_text(model.read_text())


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    """After each attack all processes are the same, and others are served."""
    pids = running.pids()
    yield running
    # What a load that failed had started may still be on its way out.
    eventually(lambda: pids == running.pids(), 60, "the same processes")
    assert 200 == running.status("/v2/models/identity_fp32/ready")
    assert "Traceback" not in running.log_text()


def _ask(server: Server, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    got = send_raw(server.http_port, raw_request(method, path, body, Connection="close"))
    [status] = got.statuses
    return status, got.data


def _call(server: Server, rpc: str, kind: str, **fields: Any) -> tuple[str, str]:
    request = message(f"inference.{kind}")(**fields).SerializeToString()
    with (
        grpc.insecure_channel(server.grpc_address) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        channel.unary_unary(_SERVICE + rpc)(request, timeout=30)
    return caught.value.code().name, caught.value.details()


def _quoted(name: str) -> str:
    return "".join(f"%{byte:02x}" for byte in name.encode(errors="surrogateescape"))


def _leading_out(file: str) -> list[str]:
    return ["../etc", "a/../b", "..", "/etc/passwd", "a/b", "model/", f"../../../..{file}"]


ODD = [
    "$(touch @)",
    "`touch @`",
    ";touch @",
    "a\nb",
    "a\x00b",
    "\x1b[2J",
    '"',
    "{x}",
    "\u202e",
    " ..",
    "..my_model",
    "model.version1",
    "\udcff",
    "x" * 256,
    "x" * 7000,
]


@pytest.mark.parametrize("name", _leading_out("/tmp"))
def test_a_name_that_leads_elsewhere_is_not_loaded(server: Server, name: str) -> None:
    status, text = _ask(server, "POST", f"/v2/repository/models/{_quoted(name)}/load")
    code, details = _call(
        server, "RepositoryModelLoad", "RepositoryModelLoadRequest", model_name=name
    )

    assert status in (400, 404)
    assert b"Traceback" not in text
    assert "INVALID_ARGUMENT" == code
    assert "model name must not contain path traversal characters" in details


@pytest.mark.parametrize("name", ODD, ids=lambda name: repr(name[:20]))
def test_an_odd_name_is_a_model_that_is_not_there(
    server: Server, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "touched"
    name = name.replace("@", str(file))

    for method, path in (
        ("POST", "models/%s/infer"),
        ("POST", "repository/models/%s/load"),
        ("GET", "models/%s/config"),
        ("GET", "models/%s/ready"),
        ("GET", "models/%s/stats"),
        ("GET", "models/%s"),
    ):
        status, text = _ask(
            server, method, "/v2/" + path % _quoted(name), b"{}" * (method == "POST")
        )
        # A model that cannot be loaded is a 500, as in Triton.
        assert status in (400, 404, 414) or (status == 500 and "load" in path), (path, text)
        assert b"Traceback" not in text
    for rpc, kind, field in (
        ("ModelInfer", "ModelInferRequest", "model_name"),
        ("ModelConfig", "ModelConfigRequest", "name"),
        ("ModelStatistics", "ModelStatisticsRequest", "name"),
        ("RepositoryModelLoad", "RepositoryModelLoadRequest", "model_name"),
    ):
        if "\udcff" in name:
            continue  # protobuf has no such strings
        code, _ = _call(server, rpc, kind, **{field: name})
        assert code in ("INVALID_ARGUMENT", "NOT_FOUND") or rpc.endswith("Load"), rpc

    assert not file.exists()


def test_models_that_are_unknown_add_nothing_to_the_metrics(server: Server) -> None:
    def series() -> list[tuple[str, str]]:
        lines = [line.rpartition(" ") for line in server.metrics_text().splitlines()]
        return [(name, value) for name, _, value in lines]

    def answers() -> list[float]:
        now = dict(series())
        codes = 'http_responses_total{code="405"}', 'grpc_responses_total{code="UNIMPLEMENTED"}'
        return [float(now.get(f"zmqtriton_{each}", 0)) for each in codes]

    def ask(number: int) -> list[str]:
        """Return the names of all series after these requests and those before them."""
        expected = [before + 1 for before in answers()]
        paths = [f"/v2/models/m{n}/infer" for n in range(number)]
        requests = b"".join(raw_request("POST", path, b"{}") for path in paths)
        last = raw_request("DELETE", "/v2", Connection="close")
        assert [400] * number + [405] == send_raw(server.http_port, requests + last).statuses
        code, _ = _call(server, "ModelInfer", "ModelInferRequest", model_name=f"m{number}")
        assert "INVALID_ARGUMENT" == code
        code, _ = _call(server, "Nothing", "ModelInferRequest")
        assert "UNIMPLEMENTED" == code
        # There is one process of each, which tells later of all its answers at once: when it has
        # told of these, which no other test gets, it has told of those before.
        eventually(lambda: expected == answers(), 30, "the answers are counted")
        return sorted(name for name, _ in series())

    # The first answer with a status adds that.
    assert ask(1) == ask(500)


BOMBS: dict[str, dict[str, Any]] = {
    "too many instances": {"instance_group": [{"count": 10**9, "kind": "KIND_CPU"}]},
    "a batch beyond 31 bits": {"max_batch_size": 2**31},
    "a negative batch": {"max_batch_size": -1},
    "a size beyond all": {"input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [2**63]}]},
    "no batch to prefer": {
        "max_batch_size": 4,
        "dynamic_batching": {"preferred_batch_size": [0]},
    },
    "a delay beyond 64 bits": {
        "max_batch_size": 4,
        "dynamic_batching": {"max_queue_delay_microseconds": 2**64},
    },
    "a GPU that is not there": {"instance_group": [{"kind": "KIND_GPU", "gpus": [99]}]},
    "a file elsewhere": {"default_model_filename": "../../../x.py"},
    "a file by its path": {"default_model_filename": "/etc/passwd"},
}


@pytest.mark.parametrize("change", BOMBS.values(), ids=BOMBS)
def test_a_configuration_that_asks_for_too_much_is_refused(
    server: Server, change: dict[str, Any]
) -> None:
    body = json.dumps({"parameters": {"config": json.dumps({**CONFIG, **change})}}).encode()

    status, text = _ask(server, "POST", "/v2/repository/models/victim/load", body)

    assert status in (400, 500)
    assert b"internal error" not in text
    assert b'{"error":"' in text
    assert b"Traceback" not in text
    assert 200 == server.status("/v2/models/identity_fp32/ready")


# ---------------------------------------------------- configurations without end


def _chain(count: int, model: str = "identity_fp32") -> dict[str, Any]:
    """An ensemble of so many steps, one after the other."""
    steps = [
        {
            "model_name": model,
            "input_map": {"INPUT0": f"t{number}"},
            "output_map": {"OUTPUT0": f"t{number + 1}"},
        }
        for number in range(count)
    ]
    return {
        "name": "victim",
        "platform": "ensemble",
        "input": [{"name": "t0", **_TENSOR}],
        "output": [{"name": f"t{count}", **_TENSOR}],
        "ensemble_scheduling": {"step": steps},
    }


def _with_inputs(count: int) -> dict[str, Any]:
    return {**CONFIG, "input": [{"name": f"I{n}", **_TENSOR} for n in range(count)]}


def _nested(depth: int) -> str:
    return '{"name":"victim","a":' + "[" * depth + "]" * depth + "}"


_GROUPS = [{"kind": "KIND_CPU"}] * 5000
ENDLESS: dict[str, tuple[Callable[[], str], str]] = {
    "10 MB": (
        lambda: json.dumps({**CONFIG, "parameters": {"a": {"string_value": "x" * 10_000_000}}}),
        " 1048576",
    ),
    "20,000 steps": (lambda: json.dumps(_chain(20_000)), " 1048576"),
    "1,000 steps of nobody": (lambda: json.dumps(_chain(1000, "nobody")), "nobody"),
    "5,000 groups": (lambda: json.dumps({**CONFIG, "instance_group": _GROUPS}), "limit"),
    "20,000 inputs": (lambda: json.dumps(_with_inputs(20_000)), " 1048576"),
    "nested 101 times": (lambda: _nested(101), "Cannot find field"),
    "nested 250,000 times": (lambda: _nested(250_000), "nested too deeply"),
}
ENDLESS_FILES = {
    "10 MB": ("# " + "x" * 10_000_000, "exceeds the limit of 1048576"),
    "nested messages": ("ensemble_scheduling {" + "step {" * 100_000, "failed to read text proto"),
    "nested lists": ("parameters: " + "[" * 100_000, "failed to read text proto"),
}


def _beside_others(server: Server, ask: Callable[[], Any]) -> Any:
    """Run this and return its result; others are answered until then, and memory stays bounded."""
    inputs, peak = [tensor("INPUT0", "FP32", [1.0])], peak_mib(server, "supervisor")
    body = json.dumps({"inputs": inputs}).encode()
    with ThreadPoolExecutor(1) as beside:
        asking = beside.submit(ask)
        while not asking.done():
            assert 200 == _ask(server, "POST", "/v2/models/identity_fp32/infer", body)[0]
            time.sleep(0.01)
    assert peak_mib(server, "supervisor") < peak + 200
    return asking.result()


def _load_over_http(server: Server, config: str) -> str:
    body = json.dumps({"parameters": {"config": config}}).encode()
    status, text = _ask(server, "POST", "/v2/repository/models/victim/load", body)
    assert status in (400, 500)
    return str(json.loads(text.partition(b"\r\n\r\n")[2])["error"])


def _load_over_grpc(server: Server, config: str) -> str:
    parameters = {"config": {"string_param": config}}
    kind = "RepositoryModelLoadRequest"
    call = partial(_call, server, "RepositoryModelLoad", kind, model_name="victim")
    return call(parameters=parameters)[1]


@pytest.mark.parametrize(
    ("name", "load"),
    [*((name, _load_over_http) for name in ENDLESS), ("10 MB", _load_over_grpc)],
)
def test_a_configuration_without_end_is_refused(
    server: Server, name: str, load: Callable[[Server, str], str]
) -> None:
    make, reason = ENDLESS[name]
    config = make()

    assert reason in _beside_others(server, lambda: load(server, config))


@pytest.mark.parametrize("name", ENDLESS_FILES)
def test_a_file_of_configuration_without_end_is_refused(server: Server, name: str) -> None:
    text, reason = ENDLESS_FILES[name]
    file = server.repository / "victim" / "config.pbtxt"
    file.write_text(text)
    try:
        path = "/v2/repository/models/victim/load"
        status, data = _beside_others(server, lambda: _ask(server, "POST", path))
    finally:
        file.unlink()

    assert status in (400, 500)
    assert reason in json.loads(data.partition(b"\r\n\r\n")[2])["error"]


def test_an_ensemble_of_very_many_steps_is_answered_beside_others(server: Server) -> None:
    body = json.dumps({"parameters": {"config": json.dumps(_chain(500))}}).encode()
    request_body = json.dumps({"inputs": [tensor("t0", "FP32", [7.0])]}).encode()

    loaded = _beside_others(
        server, lambda: _ask(server, "POST", "/v2/repository/models/victim/load", body)
    )
    answered = _beside_others(
        server, lambda: _ask(server, "POST", "/v2/models/victim/infer", request_body)
    )

    assert 200 == _ask(server, "POST", "/v2/repository/models/victim/unload")[0]
    assert (200, 200) == (loaded[0], answered[0]), answered
    [output] = json.loads(answered[1].partition(b"\r\n\r\n")[2])["outputs"]
    assert [7.0] == output["data"]
