"""A fleet of two nodes on Ray under load: one is killed, and a new version is rolled out.

`make fleet-demo` runs it. Rates are measured with as many clients for each node as can be, and say
something only where there are cores for both nodes and the clients, since all are on this machine.
The CPU of the servers per request is measured at a rate that leaves room for others, so it tells
anywhere what a second node costs. So does everything else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.addons.fleet.fleet_process import FleetProcess
from tests.addons.fleet.ray_cluster import RayCluster
from tests.bench import clients, cpu
from tests.faults.stamps import BODY, MODEL, SteadyLoad
from zmqtriton_addons.fleet.haproxy import find_program
from zmqtriton_floor.errors import NotFound

CLIENTS_PER_NODE = 8
PER_SECOND_PER_NODE = 150
_MEASURED_S = 5.0


class Rate(NamedTuple):
    per_second: float
    cpu_ms: float


class Course(NamedTuple):
    """Figures of the run with two nodes, from its first request to its last."""

    requests: int
    #: Sent before all processes of the node had ended, and any others.
    lost: int
    failed: int
    whole_s: float
    rollout_s: float
    is_rolled_out: bool


def main() -> int:
    try:
        find_program()
    except NotFound as error:
        sys.stderr.write(f"error: {error.text}\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="fleet-demo-") as holder, RayCluster(3) as cluster:
        repository = Path(holder)
        shutil.copytree(Path("tests/models") / MODEL, repository / MODEL)
        options = ["--engine=ray", f"--ray-address={cluster.address}"]
        _tell("one node")
        with FleetProcess(*options, repository=repository, nodes=1) as fleet:
            one = _measure(fleet, 1)
        _tell("two nodes")
        with FleetProcess(*options, repository=repository) as fleet:
            two = _measure(fleet, 2)
            course = _disturb(fleet, cluster, repository)
    _report(one, two, course)
    return 0 if course.is_rolled_out and not course.failed else 1


def _tell(line: str) -> None:
    sys.stderr.write(f"{line} …\n")


def _measure(fleet: FleetProcess, nodes: int) -> Rate:
    at_rate = _measure_load(fleet, nodes, nodes * PER_SECOND_PER_NODE)
    at_most = _measure_load(fleet, nodes)
    return Rate(at_most.per_s, at_rate.cpu_us["all"] / 1e3)


def _measure_load(fleet: FleetProcess, nodes: int, rate: float = 0.0) -> clients.LoadResult:
    plan = clients.http(fleet.http_port, BODY, MODEL)
    count, pids = nodes * CLIENTS_PER_NODE, fleet.pids()
    return clients.measure(plan, count, _MEASURED_S, lambda: cpu.of_trees(pids), rate=rate)


def _disturb(fleet: FleetProcess, cluster: RayCluster, repository: Path) -> Course:
    per_second = 2 * PER_SECOND_PER_NODE
    count = 2 * CLIENTS_PER_NODE
    with SteadyLoad(fleet.http_port, per_second=per_second, clients=count) as asking:
        time.sleep(1)
        _tell("a node is killed")
        victim = fleet.announced()[0]["pid"]
        cluster.kill_node(victim)
        killed_s = time.monotonic()
        fleet.wait_until_ready(without=victim)
        whole_s = time.monotonic() - killed_s
        _tell("a new version is rolled out")
        code = repository / MODEL / "1" / "model.py"
        code.write_text(code.read_text().replace("STAMP = 0", "STAMP = 1"))
        began_s = time.monotonic()
        done = _roll_out(fleet)
        rollout_s = time.monotonic() - began_s
        time.sleep(1)
    failed = asking.failed()
    lost = [answer for answer in failed if answer.sent_ns < killed_s * 1e9]
    is_rolled_out = done.returncode == 0 and set(asking.answers[-1].stamps) == {1}
    return Course(
        requests=len(asking.answers),
        lost=len(lost),
        failed=len(failed) - len(lost),
        whole_s=whole_s,
        rollout_s=rollout_s,
        is_rolled_out=is_rolled_out,
    )


def _roll_out(fleet: FleetProcess) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "zmqtriton.ctl.main", "fleet"]
    return subprocess.run([*command, f"--servers={fleet.directory}", "rollout", MODEL], check=False)


def _report(one: Rate, two: Rate, course: Course) -> None:
    rows = [
        ("requests per second, one node", f"{one.per_second:.0f}"),
        ("requests per second, two nodes", f"{two.per_second:.0f}"),
        ("ratio", f"{two.per_second / one.per_second:.2f} on {os.cpu_count()} cores"),
        ("CPU of the servers per request, one node", f"{one.cpu_ms:.2f} ms"),
        ("CPU of the servers per request, two nodes", f"{two.cpu_ms:.2f} ms"),
        ("requests while a node died and a version was rolled out", f"{course.requests}"),
        (
            "failed: under way when the node was killed",
            f"{course.lost} of {2 * CLIENTS_PER_NODE} at most",
        ),
        ("failed: others", f"{course.failed}"),
        ("time until the fleet was whole", f"{course.whole_s:.1f} s"),
        ("time of the rollout", f"{course.rollout_s:.1f} s"),
        ("the new version answers", "yes" if course.is_rolled_out else "no"),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    sys.exit(main())
