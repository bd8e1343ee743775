"""The drive through one machine, in its namespaces: `python -m …drive MACHINE DIRECTORY`.

Prints nothing and ends with 0 if the machine is as the table says; else prints what is not.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import psutil
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

from tests.faults.machines.machine import Machine
from tests.faults.machines.table import MACHINES
from tests.support import stub_user
from tests.support.clients import infer_inputs
from tests.support.server import Server
from tests.support.waiting import eventually

_COMMAND_LIMIT_S = 60
_SMALL, _LARGE = 16, 1 << 20
_STREAMED = 5


class Drive:
    def __init__(self, machine: Machine, place: Path) -> None:
        self._machine = machine
        self._place = place
        for name in ("home", "tmp"):
            (place / name).mkdir(mode=0o777)
            (place / name).chmod(0o1777)
        places = {"HOME": f"{place}/home", "TMPDIR": f"{place}/tmp"}
        self._environment = places | {
            name: text.replace("$PLACE", str(place)) for name, text in machine.environment.items()
        }
        self._python = machine.python() if machine.python else Path(sys.executable)
        self.server = server = Server(
            place / machine.directory,
            models=["counting"],
            options=machine.options,
            environment=self._environment,
            stub_user="",
            python=self._python,
        )
        server.add_model("identity_fp32", machine.model)
        server.url = f"http://{machine.host}:{server.http_port}"
        server.grpc_address = f"{machine.host}:{server.grpc_port}"
        server.wrapper = [word.replace("$PLACE", str(place)) for word in machine.wrapper]
        stub_user.open_up(server.directory)
        server.scratch.chmod(0o1777)
        server.directory.chmod(0o777)
        machine.prepare(server)
        self._files_before = frozenset(self._files())

    def run(self) -> None:
        """Raises AssertionError with what is not as the table says."""
        server = self.server
        server.launch()
        eventually(lambda: server.returncode is not None or server.is_ready(), 60, "ready")
        if self._machine.sentence or server.returncode is not None:
            assert server.returncode == 1, f"told, and ready or {server.returncode}"
            assert self._machine.is_said_in(server.log_text()), "its words are not there"
            assert "Traceback" not in server.log_text()
        else:
            try:
                self._drive()
            finally:
                if server.returncode is None:
                    server.kill()
        eventually(lambda: not self._left(), 60, f"left: {self._left()}")

    def _drive(self) -> None:
        for module in (http_client, grpc_client):
            for size in (_SMALL, _LARGE):
                self._infer(module, size)
        self._stream()
        self._kill_stub()
        if self._machine.change:
            self._machine.change(self.server)
        else:
            model = self.server.repository / self._machine.model
            with (model / "1" / "model.py").open("a") as code:
                code.write("\n# another version\n")
        self._run_ctl("reload", self._machine.model)
        self._infer(http_client, _SMALL)
        assert self._machine.model in self._run_ctl("status")
        self._machine.before_end(self.server)
        self._end()

    def _end(self) -> None:
        process, supervisor = self.server.process, self._supervisor()
        assert process is not None
        supervisor.send_signal(signal.SIGTERM)
        if self._machine.grace_s:
            with suppress(subprocess.TimeoutExpired):
                process.wait(self._machine.grace_s)
            # as the kubelet does to the first process of a container
            supervisor.kill()
            process.wait()
            return
        status = process.wait(60)
        assert status == 0, f"ended with {status}"

    def _infer(self, module: Any, size: int) -> None:
        server = self.server
        array = np.arange(size, dtype=np.float32)
        address = server.url[7:] if module is http_client else server.grpc_address
        with module.InferenceServerClient(address) as client:
            answer = client.infer(self._machine.model, infer_inputs(module, INPUT0=array))
            assert np.array_equal(array, answer.as_numpy("OUTPUT0"))

    def _stream(self) -> None:
        results: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
        inputs = infer_inputs(grpc_client, COUNT=np.array([_STREAMED], np.int32))
        with grpc_client.InferenceServerClient(self.server.grpc_address) as client:
            client.start_stream(lambda result, error: results.put((result, error)))
            client.async_stream_infer("counting", inputs)
            for number in range(_STREAMED):
                result, error = results.get(timeout=_COMMAND_LIMIT_S)
                assert error is None, error
                assert [number] == result.as_numpy("NUMBER").tolist()
            client.stop_stream()

    def _kill_stub(self) -> None:
        [killed] = self.server.stub_pids(self._machine.model)
        os.kill(killed, signal.SIGKILL)
        # the request waits for the next process
        eventually(lambda: self._is_replaced(killed), 30, f"a process after {killed}")
        self._infer(http_client, _SMALL)

    def _is_replaced(self, killed: int) -> bool:
        pids = self.server.stub_pids(self._machine.model)
        return bool(pids) and killed not in pids and self.server.is_ready()

    def _run_ctl(self, *words: str) -> str:
        server = self.server
        choice = ["--server", f":{server.http_port}"]
        prefix = server.wrapper
        if self._has_namespaces:
            # as `docker exec` does
            prefix = ["nsenter", f"--target={self._supervisor().pid}", "--pid", "--mount"]
        said = subprocess.run(
            [*prefix, self._python, "-m", "zmqtriton.ctl.main", *choice, *words],
            capture_output=True,
            env=os.environ | self._environment,
            cwd=server.directory,
            timeout=_COMMAND_LIMIT_S,
            check=False,
        )
        output = (said.stdout + said.stderr).decode("utf-8", "replace")
        assert said.returncode == 0, f"ctl {words[0]}: {said.returncode}: {output}"
        return output

    def _supervisor(self) -> psutil.Process:
        """The server itself, also if its wrapper waits for it."""
        process = psutil.Process(self.server.pid)
        return process.children()[0] if self._has_namespaces else process

    @property
    def _has_namespaces(self) -> bool:
        return self._machine.wrapper[:1] == ("unshare",)

    def _left(self) -> list[str]:
        """Return what is still there: processes of this machine, and files that it had not."""
        left = [
            f"process {' '.join(process.info['cmdline'] or ())}"
            for process in psutil.process_iter(["status", "cmdline"])
            if process.pid not in (1, os.getpid(), os.getppid())
            and process.info["status"] != psutil.STATUS_ZOMBIE
        ]
        return left + sorted(set(self._files()) - self._files_before)

    def _files(self) -> Iterator[str]:
        for place in (Path("/run"), Path("/dev/shm"), self._place / "tmp"):
            yield from map(str, place.rglob("*"))


def main() -> int:
    name, place = sys.argv[1:]
    drive = Drive(MACHINES[name], Path(place))
    try:
        drive.run()
    except Exception as error:  # noqa: BLE001 - whatever it is, the table fails
        print(
            json.dumps(
                {"error": f"{type(error).__name__}: {error}", "log": drive.server.log_text()}
            )
        )
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
