"""Requests lost by both ways when a part of a fleet on Ray Serve is killed under load.

`make faults OF=fleet` runs it: three nodes of Ray on this machine, two servers, HAProxy with a
follower straight to the servers, and Serve's own proxies. Each part is killed once; the table says
how many requests failed by each way, and after how long as many servers were ready as before, and
both ways.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import psutil

from tests.bench import clients, cpu
from tests.faults.stamps import BODY, MODEL, SteadyLoad
from tests.support.waiting import eventually
from zmqtriton_extras.fleet.tests.ray_cluster import RayCluster
from zmqtriton_extras.fleet.tests.ray_fleet import RayFleet

PER_SECOND, CLIENTS = 50, 8
_WITHIN_S = 180.0
_AFTER_S = 3.0
#: Within this time nothing was away.
_AT_ONCE_S = 1.0
_MEASURED_S = 5.0


class Row(NamedTuple):
    kind: str
    #: Failed requests and all, straight to the servers, and by Serve's proxies.
    direct: tuple[int, int]
    served: tuple[int, int]
    back_s: float
    reasons: Counter[str]


class Kills:
    """The parts that can be killed. Each returns the pid of the server that has gone; 0 if none."""

    def __init__(self, fleet: RayFleet, cluster: RayCluster) -> None:
        self._fleet, self._cluster = fleet, cluster

    def table(self) -> dict[str, Callable[[], int]]:
        return {
            "server": lambda: self._signal(signal.SIGKILL),
            "server hangs": self._hang,
            "replica": self._replica,
            "Serve's controller": lambda: self._actor("ServeController"),
            "Serve's proxies": lambda: self._actor("Proxy"),
            "announcers": self._announcers,
            "follower": self._follower,
            "head, for 5 s": self._head,
            "raylet": self._node,
        }

    def _victim(self) -> psutil.Process:
        servers = self._fleet.servers()
        return servers[min(servers)]

    def _signal(self, number: signal.Signals) -> int:
        victim = self._victim()
        victim.send_signal(number)
        return victim.pid

    def _hang(self) -> int:
        victim = self._victim()
        for process in (victim, *victim.children(recursive=True)):
            process.suspend()
        return victim.pid

    def _replica(self) -> int:
        victim = self._victim()
        parent = victim.parent()
        assert parent is not None
        parent.kill()
        return victim.pid

    def _actor(self, name: str) -> int:
        self._cluster.kill_actor(name)
        return 0

    def _announcers(self) -> int:
        for server in self._fleet.servers().values():
            for process in server.children():
                if "announcing" in " ".join(process.cmdline()):
                    process.kill()
        return 0

    def _follower(self) -> int:
        assert self._fleet.follower is not None
        self._fleet.follower.kill()
        self._fleet.follower.wait()
        time.sleep(_AFTER_S)
        self._fleet.follow_again()
        return 0

    def _head(self) -> int:
        self._cluster.restart_head(5.0)
        return 0

    def _node(self) -> int:
        victim = self._victim().pid
        self._cluster.kill_node(victim)
        return victim


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="this part; may be repeated")
    parser.add_argument("--rates", action="store_true", help="rates of both ways, and kill nothing")
    arguments = parser.parse_args()
    servers = 1 if arguments.rates else 2
    with (
        RayCluster(3, keeps_state=True) as cluster,
        RayFleet(cluster, servers=servers) as fleet,
    ):
        eventually(fleet.is_whole, _WITHIN_S)
        if arguments.rates:
            _rates(fleet)
            return 0
        kills = Kills(fleet, cluster).table()
        for kind in arguments.only or kills:
            _print(_measure(fleet, kind, kills[kind]))
    return 0


def _measure(fleet: RayFleet, kind: str, kill: Callable[[], int]) -> Row:
    eventually(fleet.is_whole, _WITHIN_S)
    _await_ways(fleet)
    with (
        SteadyLoad(fleet.http_port, per_second=PER_SECOND, clients=CLIENTS) as direct,
        SteadyLoad(fleet.serve_port, per_second=PER_SECOND, clients=CLIENTS) as served,
    ):
        time.sleep(_AFTER_S)
        victim = kill()
        began_s = time.monotonic()
        eventually(lambda: fleet.is_whole(without=victim), _WITHIN_S)
        _await_ways(fleet)
        back_s = time.monotonic() - began_s
        time.sleep(_AFTER_S)
    reasons = Counter(f"{a.status} {a.text[:60]}" for a in (*direct.failed(), *served.failed()))
    return Row(
        kind,
        (len(direct.failed()), len(direct.answers)),
        (len(served.failed()), len(served.answers)),
        back_s if victim or back_s > _AT_ONCE_S else 0.0,
        reasons,
    )


def _await_ways(fleet: RayFleet) -> None:
    """Return when requests come by both ways."""
    for port in (fleet.http_port, fleet.serve_port):
        eventually(partial(_is_ready, fleet, port), _WITHIN_S)


def _is_ready(fleet: RayFleet, port: int) -> bool:
    return fleet.status("/v2/health/ready", port) == 200


def _print(row: Row) -> None:
    direct, served = (f"{failed} of {all_}" for failed, all_ in (row.direct, row.served))
    back = f"{row.back_s:.1f} s" if row.back_s else "-"
    print(f"{row.kind:<20} {direct:>12} {served:>12} {back:>8}", flush=True)
    for reason, count in row.reasons.most_common(3):
        sys.stderr.write(f"    {count} times {reason}\n")


def _rates(fleet: RayFleet) -> None:
    """Print rate, latency and CPU of one server alone and by each way."""
    [server] = fleet.servers().values()
    assert fleet.haproxy is not None
    port = int(fleet.announcement(server)["addresses"]["http"].rpartition(":")[2])
    proxies = [p.pid for p in psutil.process_iter() if "ProxyActor" in " ".join(p.cmdline())]
    # the replica is the parent of its server
    by_serve = [*proxies, server.ppid()]
    ways = {
        "alone": (port, [server.pid]),
        "HAProxy": (fleet.http_port, [server.pid, fleet.haproxy.pid]),
        "Serve": (fleet.serve_port, by_serve),
    }
    for name, (at, pids) in ways.items():
        for count in (1, CLIENTS):
            plan = clients.http(at, BODY, MODEL)
            result = clients.measure(plan, count, _MEASURED_S, partial(cpu.of_trees, pids))
            figures = (
                f"{result.per_s:7.0f} per s  p50 {result.p50_ms:.2f} ms  p99 {result.p99_ms:.2f} ms"
            )
            print(
                f"{name:<8} {count:>2} clients {figures}  CPU {result.cpu_us['all']:.0f} us",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
