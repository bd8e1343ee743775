"""A fleet on Ray Serve, on a real cluster whose nodes are raylets of this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from tests.faults.stamps import BODY, MODEL, SteadyLoad
from tests.support.clients import infer_inputs
from tests.support.waiting import eventually
from zmqtriton_extras.fleet.tests.proxies.programs import find
from zmqtriton_extras.fleet.tests.ray_cluster import RayCluster
from zmqtriton_extras.fleet.tests.ray_fleet import RayFleet

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not in this environment; make test KIND=fleet has one with it",
    ),
]

PER_SECOND, CLIENTS = 50, 8
WITHIN_S = 120.0
SLOWLY = """\
        import time

        time.sleep(0.05)
        responses = []
"""
#: An application of somebody else on the same cluster.
OTHER = """
import sys
import ray
from ray import serve

@serve.deployment(ray_actor_options={"num_cpus": 0})
class Other:
    def __call__(self) -> str:
        return "other"

ray.init(address=sys.argv[1], namespace="serve", log_to_driver=False)
if sys.argv[2] == "up":
    serve.run(Other.bind(), name="other", route_prefix="/other")
else:
    serve.delete("other")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    find("haproxy")
    with RayCluster(3) as started:
        yield started


@pytest.fixture(scope="module")
def fleet(cluster: RayCluster) -> Iterator[RayFleet]:
    with RayFleet(cluster) as running:
        yield running


def test_requests_come_by_serves_proxies_and_straight_to_the_servers(fleet: RayFleet) -> None:
    for port in (fleet.serve_port, fleet.http_port):
        url = f"http://127.0.0.1:{port}/v2/models/{MODEL}/infer"
        with urllib.request.urlopen(url, BODY, timeout=60) as answer:
            assert json.load(answer)["model_name"] == MODEL
            assert answer.headers["Content-Length"]
        assert fleet.status("/v2/models/no_such/ready", port) == 400

    for port in (fleet.serve_grpc_port, fleet.grpc_port):
        with grpc_client.InferenceServerClient(f"127.0.0.1:{port}") as client:
            inputs = infer_inputs(grpc_client, ID=np.ones((1, 1), np.int32))
            result = client.infer(MODEL, inputs, headers={"x-model": MODEL})
            assert result.as_numpy("IMPORTED").shape == (1, 1)
            with pytest.raises(grpc_client.InferenceServerException, match="no_such") as error:
                client.infer("no_such", inputs)
            assert error.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_a_change_of_models_restarts_nothing_and_loses_no_request(fleet: RayFleet) -> None:
    eventually(fleet.is_whole, WITHIN_S)
    before = set(fleet.servers())
    code = fleet.repository / MODEL / "1" / "model.py"
    code.write_text(code.read_text().replace("STAMP = 0", "STAMP = 7"))

    with SteadyLoad(fleet.http_port, per_second=PER_SECOND, clients=CLIENTS) as asking:
        fleet.up(models={MODEL: 2, "add_sub": 1})
        count = len(asking.answers)
        eventually(lambda: len(asking.answers) > count + 2 * CLIENTS, WITHIN_S)

    assert asking.failed() == []
    assert {7} == set(asking.answers[-1].stamps)
    assert before == set(fleet.servers())
    eventually(lambda: fleet.status("/v2/models/add_sub/ready") == 200, WITHIN_S)


def test_a_model_that_fails_leaves_the_old_version(fleet: RayFleet) -> None:
    before = set(fleet.servers())
    code = fleet.repository / MODEL / "1" / "model.py"
    good = code.read_text()
    code.write_text("raise ValueError('broken')\n")
    try:
        with SteadyLoad(fleet.http_port, per_second=PER_SECOND, clients=CLIENTS) as asking:
            fleet.up(models={MODEL: 3, "add_sub": 1})
    finally:
        code.write_text(good)

    assert asking.failed() == []
    assert before == set(fleet.servers())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["dead", "hung"])
def test_a_server_is_replaced_and_only_what_it_executed_is_lost(
    fleet: RayFleet, number: signal.Signals
) -> None:
    eventually(fleet.is_whole, WITHIN_S)
    victim, other = sorted(fleet.servers())
    processes = fleet.servers()[victim].children(recursive=True)
    with SteadyLoad(fleet.http_port, per_second=PER_SECOND, clients=CLIENTS) as asking:
        eventually(lambda: len(asking.answers) > PER_SECOND, WITHIN_S)
        os.kill(victim, number)
        if number == signal.SIGSTOP:
            for each in processes:
                each.suspend()
        eventually(lambda: fleet.is_whole(without=victim), WITHIN_S)

    # of a hung server also those that came before its probes have failed
    assert len(asking.failed()) <= (CLIENTS if number == signal.SIGKILL else 4 * CLIENTS)
    assert other in fleet.servers(), "it was left alone"
    eventually(lambda: victim not in fleet.servers(), WITHIN_S)


def test_the_death_of_a_node_moves_its_server(fleet: RayFleet, cluster: RayCluster) -> None:
    eventually(fleet.is_whole, WITHIN_S)
    victim, _ = sorted(fleet.servers())
    with SteadyLoad(fleet.http_port, per_second=PER_SECOND, clients=CLIENTS) as asking:
        eventually(lambda: len(asking.answers) > PER_SECOND, WITHIN_S)
        cluster.kill_node(victim)
        eventually(lambda: fleet.is_whole(without=victim), WITHIN_S)

    # its processes end one after the other, and clients may meet each of these ends
    assert len(asking.failed()) <= 4 * CLIENTS


def test_ctl_knows_how_many_there_should_be(fleet: RayFleet, cluster: RayCluster) -> None:
    def is_whole() -> bool:
        return fleet.control("status").returncode == 0

    other = [sys.executable, "-c", OTHER, cluster.address]
    subprocess.run([*other, "up"], check=True, timeout=WITHIN_S)
    try:
        eventually(is_whole, WITHIN_S)
    finally:
        subprocess.run([*other, "down"], check=True, timeout=WITHIN_S)
    assert len(json.loads(fleet.control("status", "-o", "json").stdout)) == 2
    fewer = fleet.control("status", "--expect=3")
    assert (fewer.returncode, "2 of 3 servers are ready" in fewer.stderr) == (1, True)


def test_the_direct_way_goes_on_without_controller_and_follower(
    fleet: RayFleet, cluster: RayCluster
) -> None:
    eventually(fleet.is_whole, WITHIN_S)
    assert fleet.follower is not None
    with SteadyLoad(fleet.http_port, per_second=PER_SECOND, clients=CLIENTS) as asking:
        cluster.kill_actor("ServeController")
        fleet.follower.kill()
        fleet.follower.wait()
        count = len(asking.answers)
        eventually(lambda: len(asking.answers) > count + PER_SECOND, WITHIN_S)
        fleet.follow_again()
        count = len(asking.answers)
        eventually(lambda: len(asking.answers) > count + 2 * PER_SECOND, WITHIN_S)
        assert fleet.stop_following() == -signal.SIGTERM

    assert asking.failed() == []


def test_a_fleet_that_is_taken_down_ends_in_order(fleet: RayFleet) -> None:
    fleet.down()

    eventually(lambda: not fleet.servers(), WITHIN_S)


def test_several_groups_behind_serve_and_more_servers_for_more_load(cluster: RayCluster) -> None:
    other = {"models": {"add_sub": 1}, "max_replicas": 1}
    quarter = {"cpus": 0.25, "max_replicas": 2}
    several = RayFleet(cluster, servers=1, others={"other": other}, **quarter)
    # executions that wait, so that a few clients are too many for a server of any machine
    code = several.repository / MODEL / "1" / "model.py"
    code.write_text(code.read_text().replace("        responses = []\n", SLOWLY))
    with several as fleet:
        for model, status in ((MODEL, 200), ("add_sub", 200), ("no_such", 404)):
            assert status == fleet.status(f"/v2/models/{model}/ready", fleet.serve_port)
        with grpc_client.InferenceServerClient(f"127.0.0.1:{fleet.serve_grpc_port}") as client:
            assert client.is_model_ready(MODEL)
            assert client.is_model_ready("add_sub")
            with pytest.raises(grpc_client.InferenceServerException, match="no group has") as error:
                client.is_model_ready("no_such")
            assert error.value.status() == "StatusCode.NOT_FOUND"
            assert len(stream_answers(client, 3)) == 3

        with SteadyLoad(fleet.http_port, per_second=1000, clients=16):
            # metrics come every ten seconds, and their mean of half a minute decides
            eventually(lambda: len(fleet.servers()) == 3, 2 * WITHIN_S, "another server")


def stream_answers(client: grpc_client.InferenceServerClient, count: int) -> list[object]:
    """The results of so many requests of one stream."""
    results: list[object] = []

    def take(result: object, error: object) -> None:
        results.append(result if error is None else None)

    client.start_stream(take)
    inputs = infer_inputs(grpc_client, ID=np.ones((1, 1), np.int32))
    for _ in range(count):
        client.async_stream_infer(MODEL, inputs)
    eventually(lambda: len(results) == count, WITHIN_S)
    client.stop_stream()
    return [result for result in results if result is not None]
