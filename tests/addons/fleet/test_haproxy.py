"""HAProxy as the fleet finds and runs it."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.addons.fleet.proxies.programs import find
from tests.support.server import free_ports
from tests.support.waiting import eventually
from zmqtriton_addons.fleet import haproxy
from zmqtriton_addons.fleet.servers.nodes import Node
from zmqtriton_floor.errors import NotFound


def test_where_there_is_none_a_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(haproxy, "_PLACES", "/nowhere")

    with pytest.raises(NotFound, match="apt install haproxy"):
        haproxy.find_program()


def refusal_of(url: str) -> urllib.error.HTTPError | None:
    try:
        with urllib.request.urlopen(url, b"{}", timeout=20):
            return None
    except urllib.error.HTTPError as error:
        return error
    except OSError:
        return None


def test_a_model_that_no_server_has_yet_may_be_asked_for_later(tmp_path: Path) -> None:
    find("haproxy")
    http, of_grpc, nobody = (f"127.0.0.1:{port}" for port in free_ports(3))
    listeners = haproxy.Listeners(http, of_grpc, "")
    proxy = haproxy.HaProxy(tmp_path / "haproxy.cfg", listeners, "X-Sequence")
    proxy.update([Node(nobody, nobody, models=())], {"m"})
    try:
        url = f"http://{http}/v2/models/m/infer"
        refusal = eventually(lambda: refusal_of(url), 60)
        with refusal, grpc.insecure_channel(of_grpc) as channel:
            assert (503, "1") == (refusal.code, refusal.headers["Retry-After"])
            assert b'{"error":"no server is ready"}' == refusal.read()
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            with pytest.raises(grpc.RpcError) as error:
                stub.ModelInfer(service_pb2.ModelInferRequest(model_name="m"), timeout=20)
            assert grpc.StatusCode.UNAVAILABLE == error.value.code()
    finally:
        proxy.stop()


def test_one_that_ends_at_once_is_started_with_pauses(tmp_path: Path) -> None:
    program = tmp_path / "haproxy"
    program.write_text(f"#!/bin/sh\necho started >> {tmp_path}/log\nexit 1\n")
    program.chmod(0o755)
    proxy = haproxy.HaProxy(tmp_path / "haproxy.cfg", haproxy.Listeners(), "")
    proxy._program = str(program)
    nodes = [Node("127.0.0.1:1", models=())]

    def has_started(times: int) -> bool:
        proxy.update(nodes, ())
        log = tmp_path / "log"
        # the script writes when it likes, the next one may have been started before
        return log.exists() and log.read_text().count("started") >= times

    for times in (1, 2, 3):
        eventually(lambda times=times: has_started(times), 60)  # type: ignore[misc]
    assert proxy._backoff.pause_s > 0
    proxy.stop()
