"""A Ray cluster of several nodes on this machine: a raylet for each, and a process that owns them.

Run as a module, with NODES, it says its address, kills what each line of its stdin names (the node
of a process, an actor by its class, or the head's state service, which it starts again), answers
with a line each, and ends with its stdin.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from tests.support.needs import find_tool
from tests.support.server import free_ports

#: Memory for objects, of which there are none.
_STORE_BYTES = 80 << 20
#: A dead node is noticed sooner than by Ray's usual patience with networks, but not a node that
#: waits for a processor.
_HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 5,
}


class RayCluster:
    """Has a head without room for servers, and nodes that have room for one each."""

    def __init__(self, nodes: int, *, keeps_state: bool = False) -> None:
        """`keeps_state` for a head whose state outlives it, in Redis."""
        self._count = nodes
        #: For HTTP and gRPC of the proxies of Serve.
        self.serve_ports = free_ports(2)
        self._redis_port = free_ports(1)[0] if keeps_state else 0
        self._redis: subprocess.Popen[bytes] | None = None
        #: Whatever Ray writes; sockets are there, and their names may not be long.
        self._directory = Path(tempfile.mkdtemp(prefix="ray-"))
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    def __enter__(self) -> RayCluster:
        # nobody outside is told
        own = {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": str(self._directory),
            "RAY_raylet_start_wait_time_s": "180",
            # as docs/fleet.md has it
            "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
            "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "2",
        }
        with (self._directory / "log").open("w") as log:
            if self._redis_port:
                own["RAY_REDIS_ADDRESS"] = f"127.0.0.1:{self._redis_port}"
                words = [
                    "--port",
                    str(self._redis_port),
                    "--save",
                    "",
                    "--dir",
                    str(self._directory),
                ]
                self._redis = subprocess.Popen([find_tool("redis-server"), *words], stdout=log)
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(self._count)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **own},
            )
        self.address = self._answer()
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process is not None
        self._process.communicate()
        if self._redis is not None:
            self._redis.terminate()
            self._redis.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def kill_node(self, pid: int) -> None:
        """Kill all processes of the node that has this one, as its machine's end would."""
        self._tell(f"node {pid}")

    def kill_actor(self, name: str) -> None:
        """Kill the processes of actors whose class is called so."""
        self._tell(f"actor {name}")

    def restart_head(self, pause_s: float) -> None:
        """Kill the head's state service, and start it again after a pause, with its state."""
        self._tell(f"head {pause_s}")

    def _tell(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        self._answer()

    def _answer(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, (self._directory / "log").read_text()
        return line


class _Nodes:
    def __init__(self) -> None:
        # only now: not everybody who imports this has it
        from ray.cluster_utils import Cluster

        self._cluster = Cluster()
        self._cluster.add_node(
            num_cpus=0,
            include_dashboard=False,
            object_store_memory=_STORE_BYTES,
            _system_config=_HEALTH,
        )
        self._nodes: list[Any] = []

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self) -> None:
        node = self._cluster.add_node(num_cpus=1, object_store_memory=_STORE_BYTES, wait=False)
        self._nodes.append(node)

    def kill(self, pid: int) -> None:
        [node] = [node for node in self._nodes if pid in {p.pid for p in _processes(node)}]
        processes = _processes(node)
        # none of them may see another one's end
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in processes:
                process.send_signal(number)
        self._nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)
        psutil.wait_procs(processes)

    def kill_actor(self, name: str) -> None:
        killed = 0
        for process in psutil.Process().children(recursive=True):
            if process.name().startswith("ray::") and name in "".join(process.cmdline()):
                process.kill()
                killed += 1
        assert killed, f"no actor is called {name}"

    def restart_head(self, pause_s: float) -> None:
        head = self._cluster.head_node
        head.kill_gcs_server()
        time.sleep(pause_s)
        head.start_gcs_server()

    def end(self) -> None:
        self._cluster.shutdown()


def _processes(node: Any) -> list[psutil.Process]:
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    return [raylet, *raylet.children(recursive=True)]


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # Ray may print
    nodes = _Nodes()
    try:
        for _ in range(int(sys.argv[1])):
            nodes.add()
        answers.write(f"{nodes.address}\n")
        answers.flush()
        for line in sys.stdin:
            kind, what = line.split()
            if kind == "node":
                nodes.kill(int(what))
            elif kind == "actor":
                nodes.kill_actor(what)
            else:
                nodes.restart_head(float(what))
            answers.write("killed\n")
            answers.flush()
    finally:
        nodes.end()


if __name__ == "__main__":
    main()
