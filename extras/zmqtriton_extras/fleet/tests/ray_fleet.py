"""A fleet on Ray Serve, and HAProxy that follows its servers: both ways of requests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from tests.faults.stamps import MODEL
from tests.support.needs import ROOT
from tests.support.server import free_ports, status_of
from tests.support.waiting import eventually
from zmqtriton_extras.fleet.tests.proxies.programs import run_command
from zmqtriton_extras.fleet.tests.ray_cluster import RayCluster

_WITHIN_S = 240.0
_MODELS = ROOT / "tests" / "models"


class RayFleet:
    """Servers of the group `main` and others, which announce themselves to a follower here."""

    def __init__(
        self,
        cluster: RayCluster,
        *,
        servers: int = 2,
        others: dict[str, dict[str, Any]] | None = None,
        **fields: Any,
    ) -> None:
        """`others` are further groups, by name, with the fields in which they differ."""
        self._cluster = cluster
        self._holder = tempfile.TemporaryDirectory(prefix="ray-fleet-")
        self.directory = Path(self._holder.name)
        self.repository = self.directory / "models"
        for model in (MODEL, "add_sub"):
            shutil.copytree(_MODELS / model, self.repository / model)
        #: Of HAProxy, and of Serve's own proxies, which keep theirs from fleet to fleet.
        self.http_port, self.grpc_port, receiver = free_ports(3)
        self.serve_port, self.serve_grpc_port = cluster.serve_ports
        self._receiver = f"127.0.0.1:{receiver}"
        self._group = {
            "model_repository": str(self.repository),
            "models": {MODEL: 1},
            "min_replicas": servers,
            "options": [
                f"--announce=http://{self._receiver}/",
                "--announce-interval-secs=1",
                "--log-info=false",
                "--http-address=127.0.0.1",
                "--grpc-address=127.0.0.1",
                "--exit-timeout-secs=10",
            ],
            "drain_within_s": 5,
            **fields,
        }
        self._others = others or {}
        self._stack = ExitStack()
        self.haproxy: subprocess.Popen[bytes] | None = None
        self.follower: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RayFleet:
        with ExitStack() as stack:
            stack.callback(self._holder.cleanup)
            self.follower = self._follow()
            stack.callback(self.stop_following)
            stack.callback(self.down)
            self.up()
            configuration = self.directory / "haproxy.cfg"
            eventually(configuration.exists, _WITHIN_S)
            self.haproxy = self._start("haproxy", *run_command("haproxy", configuration))
            stack.callback(_end, self.haproxy)
            # only now may it be told to reload: before, the signal would end it
            eventually(lambda: self.status("/v2/health/ready") != 0, _WITHIN_S)
            (self.directory / "pid").write_text(str(self.haproxy.pid))
            eventually(lambda: self.status("/v2/health/ready") == 200, _WITHIN_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def follow_again(self) -> None:
        """Start the follower that has ended again."""
        self.follower = self._follow()

    def stop_following(self) -> int:
        """End the follower, and return its exit status."""
        assert self.follower is not None
        _end(self.follower)
        return self.follower.returncode

    def _follow(self) -> subprocess.Popen[bytes]:
        command = ["-m", "zmqtriton.ctl.main", "proxy", "haproxy", "--follow", "--statistics="]
        return self._start(
            "follower",
            sys.executable,
            *command,
            f"--write={self.directory / 'haproxy.cfg'}",
            f"--reload=sh -c 'kill -USR2 $(cat {self.directory / 'pid'})'",
            f"--receive={self._receiver}",
            f"--http=127.0.0.1:{self.http_port}",
            f"--grpc=127.0.0.1:{self.grpc_port}",
        )

    def _start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def up(self, **changes: Any) -> str:
        """Have the cluster run the fleet, with changes; return what the command says."""
        self._group |= changes
        document = {
            "groups": {
                "main": self._group,
                **{name: {**self._group, **own} for name, own in self._others.items()},
            },
            "serve": {
                # nodes of one machine cannot all have the port
                "proxy_location": "HeadOnly",
                "http_options": {"host": "127.0.0.1", "port": self.serve_port},
                "grpc_options": {
                    "port": self.serve_grpc_port,
                    "grpc_servicer_functions": ["zmqtriton.ray:add_servicer"],
                },
            },
        }
        self._file.write_text(json.dumps(document))
        return self._run("up")

    def down(self) -> None:
        self._run("down")

    @property
    def _file(self) -> Path:
        return self.directory / "fleet.yaml"

    def _run(self, verb: str) -> str:
        command = [sys.executable, "-m", "zmqtriton", "fleet", verb, str(self._file)]
        done = subprocess.run(
            [*command, f"--address={self._cluster.address}"],
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr

    def control(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `zmqtriton-ctl fleet` over the servers that Ray knows."""
        command = [sys.executable, "-m", "zmqtriton.ctl.main", "fleet", *words]
        environment = {**os.environ, "ZMQTRITON_FLEET": f"ray:{self._cluster.address}"}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_WITHIN_S, check=False, env=environment
        )

    def status(self, path: str, port: int = 0) -> int:
        """Ask through HAProxy, or at another port; 0 if there is no answer."""
        return status_of(f"http://127.0.0.1:{port or self.http_port}{path}", 5)

    def servers(self) -> dict[int, psutil.Process]:
        """The supervisors of this fleet's servers, by their pids."""
        word = f"--model-repository={self.repository}"
        servers = {}
        for process in psutil.process_iter(["cmdline"]):
            line = process.info["cmdline"] or []
            if word in line and any(each.startswith("--owner-descriptor=") for each in line):
                servers[process.pid] = process
        return servers

    def is_whole(self, *, without: int = 0) -> bool:
        """Return whether as many servers as there should be are ready, none of which is this."""
        servers = self.servers()
        ready = [self.is_ready(process) for pid, process in servers.items() if pid != without]
        return sum(ready) >= self._group["min_replicas"]

    @classmethod
    def is_ready(cls, process: psutil.Process) -> bool:
        """Return whether a server has announced that it is ready."""
        return bool(cls.announcement(process).get("state") == "ready")

    @staticmethod
    def announcement(process: psutil.Process) -> dict[str, Any]:
        """Return what a server has announced last; empty before that."""
        try:
            words = [word.partition("=") for word in process.cmdline()]
            [place] = [value for name, _, value in words if name == "--runtime-directory"]
            document: dict[str, Any] = json.loads((Path(place) / "announcement.json").read_text())
        except (psutil.Error, OSError, ValueError):
            return {}
        return document


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
