"""The exact arguments, probes and hooks of the container files, with a real server."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from tests.standard.deploy import manifests
from tests.standard.deploy.container import Container
from tests.standard.deploy.test_docker import of
from tests.support.clients import infer_inputs
from tests.support.server import ask_add_sub, status_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.system


def test_a_pod_is_probed_and_drains_before_it_ends(tmp_path: Path) -> None:
    container = manifests.container()
    key = tmp_path / "secret" / "admin-key"
    key.parent.mkdir()
    key.write_text("secret")
    key.chmod(0o440)
    paths = {"/models": tmp_path / "models", "/etc/zmqtriton": key.parent}
    [check] = of("HEALTHCHECK", 1)
    health = json.loads(check.value.partition("CMD ")[2])
    probes = {
        kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness")
    }

    server = Container(tmp_path, container["args"], paths)
    with server:
        assert [200, 200] == [server.status(path) for path in probes.values()]
        assert 200 == ask_add_sub(server)
        with server.begin(health) as healthy:
            assert ("the server is ready\n", "") == healthy.communicate(timeout=60)

        url = f"http://127.0.0.1:{server.http_port}/v2/repository/models/add_sub/load"
        assert 403 == status_of(urllib.request.Request(url, b"{}"))
        own = {"admin-key": "secret"}
        assert 200 == status_of(urllib.request.Request(url, b"{}", own)), "a rollout"

        with server.begin(container["lifecycle"]["preStop"]["exec"]["command"]) as hook:
            eventually(lambda: server.status(probes["readiness"]) == 400, 30)
            assert hook.poll() is None, "a second ago somebody might have come"
            assert (200, 200) == (ask_add_sub(server), server.status(probes["startup"]))
            with server.begin(health) as unhealthy:
                _, reason = unhealthy.communicate(timeout=60)
            said, _ = hook.communicate(timeout=60)

        assert (0, "the server: drained\n") == (hook.returncode, said)
        assert (1, "error: not ready after 0 s: it drains\n") == (unhealthy.returncode, reason)
        assert 0 == server.stop()


@pytest.mark.long(
    "standard/deploy/system/test_containers.py::test_a_pod_is_probed_and_drains_before_it_ends"
)
@pytest.mark.parametrize(
    "arguments",
    [manifests.runtime_container()["args"], manifests.KSERVES_ARGUMENTS],
    ids=["our runtime", "KServe's runtime for Triton"],
)
def test_kserve_gets_an_answer_from_models_behind_a_link(
    arguments: list[str], tmp_path: Path
) -> None:
    # a volume is mounted elsewhere, and linked to
    mounted = tmp_path / "mnt" / "models"
    mounted.parent.mkdir()
    mounted.symlink_to(tmp_path / "models")

    with Container(tmp_path, arguments, {"/mnt/models": mounted}, (8080, 9000, 8002)) as server:
        assert 200 == ask_add_sub(server)
        assert 200 == server.status("/v2/models/add_sub/ready")
        client = grpc_client.InferenceServerClient(server.grpc_address)
        ones = np.ones((1, 16), np.float32)
        outputs = client.infer("add_sub", infer_inputs(grpc_client, INPUT0=ones, INPUT1=ones))
        assert (outputs.as_numpy("OUTPUT0") == 2).all()
        client.close()
        assert "zmqtriton_ready 1" in server.metrics_text()
        server.kill()
