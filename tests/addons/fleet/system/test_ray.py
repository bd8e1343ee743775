"""A fleet on a real Ray cluster, whose nodes are raylets of this machine."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.addons.fleet.fleet_process import FleetProcess
from tests.addons.fleet.proxies.programs import find
from tests.addons.fleet.ray_cluster import RayCluster
from tests.faults.stamps import MODEL, SteadyLoad
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not in this environment; make test-fleet has one with it",
    ),
]

PER_SECOND, CLIENTS = 50, 8


# of one test alone: it kills nodes, and adds others
@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    with RayCluster(3) as started:
        yield started


def test_a_fleet_is_whole_again_after_the_death_of_a_server_and_of_a_node(
    cluster: RayCluster,
) -> None:
    find("haproxy")
    options = ["--engine=ray", f"--ray-address={cluster.address}", f"--load-model={MODEL}"]
    with FleetProcess(*options) as fleet:
        with SteadyLoad(fleet.http_port, per_second=PER_SECOND, clients=CLIENTS) as asking:
            eventually(lambda: len(asking.answers) > PER_SECOND, 60)

            victim = fleet.announced()[0]["pid"]
            os.kill(victim, signal.SIGKILL)
            fleet.wait_until_ready(without=victim)

            other, victim = (each["pid"] for each in fleet.announced())
            cluster.kill_node(victim)
            # on the third node
            fleet.wait_until_ready(without=victim)

        assert len(asking.failed()) <= 2 * CLIENTS, "only what they were executing"
        assert other in fleet.pids(), "it was left alone"
        assert 2 == servers_of(cluster).count(" ready ")
        assert 0 == fleet.stop()


def servers_of(cluster: RayCluster) -> str:
    """The servers that `zmqtriton-ctl` finds by Ray."""
    command = [sys.executable, "-m", "zmqtriton.ctl.main", "fleet", "status"]
    environment = {**os.environ, "ZMQTRITON_FLEET": f"ray:{cluster.address}"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    return done.stdout.replace("\t", " ") + done.stderr
