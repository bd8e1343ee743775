"""A real server with spare processes: what models of them see, and when they end.

The packages are on PYTHONPATH, in a directory with the name of one of installed packages.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.server import Server, Written, tensor
from tests.support.waiting import eventually
from zmqtriton.supervisor.machine.processes.process import STUB_OOM_SCORE

CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_STRING dims: 1 }
output { name: "OUT" data_type: TYPE_STRING dims: 1 }
"""
#: Tells what its module sees before and after its imports, and where these have run.
CODE = """
import json, os, random, sys, warnings

import numpy as np
import triton_python_backend_utils as pb_utils


def state():
    names = sorted(name for name in sys.modules if name.startswith("zt_"))
    return names, len(warnings.filters), os.environ.get("ZT_HEAVY"), sys.argv[1:]


BEFORE = state()
import zt_heavy, zt_threaded
FACTS = {
    "before": BEFORE,
    "after": state(),
    "is_ahead": zt_heavy.PID != os.getpid(),
    "is_threaded_ahead": zt_threaded.PID != os.getpid(),
    "draws": [random.random(), float(np.random.rand())],
    "telemetry": os.environ.get("ORT_DISABLE_TELEMETRY"),
}


class TritonPythonModel:
    def execute(self, requests):
        text = np.array([json.dumps({**FACTS, "pid": os.getpid()}).encode()], np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]) for _ in requests]
"""
HEAVY = """
import os, warnings
PID = os.getpid()
os.environ["ZT_HEAVY"] = "yes"
warnings.filterwarnings("ignore", message="heavy")
"""
THREADED = """
import os, threading
PID = os.getpid()
threading.Thread(target=threading.Event().wait, name="zt-thread", daemon=True).start()
"""
pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.smoke]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("packages")
    home.chmod(0o755)
    return make_packages(home / "site-packages")


def make_packages(home: Path) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    (home / "zt_heavy.py").write_text(HEAVY)
    (home / "zt_threaded.py").write_text(THREADED)
    return home


@pytest.fixture(scope="module")
def server(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("warm")
    with Server(
        home / "server",
        [Written("m", CONFIG, CODE)],
        options=["--warm-starts=on", "--reload", f"--runtime-directory={home}/run"],
        environment={"PYTHONPATH": str(packages)},
        frontends=(),
    ) as server:
        yield server


def ask(server: Server, model: str = "m") -> dict[str, Any]:
    status, answer = server.infer_json(model, tensor("IN", "BYTES", ["x"]), within_s=60)
    assert 200 == status, answer
    return dict(json.loads(answer["outputs"][0]["data"][0]))


def rows(server: Server, table: str) -> list[dict[str, Any]]:
    return list(json.loads(ctl(server, "status", "--output=json").stdout)[table])


def await_spare(server: Server) -> int:
    """Wait for the spare process without the package that starts a thread; return its pid."""

    return eventually(
        lambda: [row["pid"] for row in rows(server, "spares") if row["is_ready"]],
        120,
        "a spare process",
    )[0]


def restart(server: Server, model: str = "m") -> dict[str, Any]:
    """Kill the instance, and return the facts of the next one."""
    server.replace_only("stub", model)
    eventually(server.is_ready, 60, "another instance")
    return ask(server, model)


def test_an_instance_of_a_spare_process_sees_what_a_fresh_one_sees(server: Server) -> None:
    cold = ask(server)
    spare = await_spare(server)

    warm = restart(server)

    assert (False, True) == (cold["is_ahead"], warm["is_ahead"])
    assert not warm["is_threaded_ahead"], "it has started a thread, so it was left out"
    assert (cold["before"], cold["after"]) == (warm["before"], warm["after"])
    assert [] == warm["before"][0]
    assert cold["telemetry"] is warm["telemetry"] is None
    assert cold["draws"] != warm["draws"] != restart(server)["draws"]
    explained = ctl(server, "explain", "m").stdout
    assert f"m_0 started from the spare process {spare}, with zt_heavy imported" in explained
    [row] = rows(server, "spares")
    assert "its import starts threads: 'zt-thread'" == row["left_out"]["zt_threaded"]
    eventually(lambda: rows(server, "spares")[0]["bytes"] > 0, 60, "a look at its memory")
    assert f"spare process {spare}" in ctl(server, "memory", "m", "--between=0.5").stdout


def test_new_code_is_loaded_by_a_fork_and_its_own_files_are_read_anew(server: Server) -> None:
    await_spare(server)
    before = ask(server)["pid"]
    path = server.repository / "m" / "1" / "model.py"

    path.write_text(f"{path.read_text()}\nFACTS['version'] = 2\n")
    eventually(lambda: ask(server).get("version") == 2, 60, "the new code")

    assert ask(server)["pid"] != before
    assert ask(server)["is_ahead"]


def test_after_a_change_of_a_package_the_next_start_is_cold_and_another_one_comes(
    server: Server, packages: Path
) -> None:
    spare = await_spare(server)
    (packages / "zt_heavy.py").write_text(f"{HEAVY}\nNEW = True\n")

    assert not restart(server)["is_ahead"]

    text = ctl(server, "explain", "m").stdout
    assert "started without the spare process: the files of its packages have changed" in text
    eventually(lambda: not psutil.pid_exists(spare), 60, "the end of the old one")
    assert spare != await_spare(server)
    assert restart(server)["is_ahead"]


@pytest.mark.parametrize("kind", ["forks", "threads"])
def test_an_origin_of_instances_is_forked_from_it_and_outlives_it(
    packages: Path, tmp_path: Path, kind: str
) -> None:
    code = CODE.replace("import zt_heavy, zt_threaded", "import zt_heavy; zt_threaded = zt_heavy")
    config = f'{CONFIG} parameters {{ key: "INSTANCES" value {{ string_value: "{kind}" }} }}'
    with Server(
        tmp_path / "server",
        [Written("m", config, code)],
        options=["--warm-starts=on", f"--runtime-directory={tmp_path}/run"],
        environment={"PYTHONPATH": str(packages)},
        frontends=(),
    ) as server:
        assert not ask(server)["is_ahead"]
        spare = await_spare(server)

        ctl(server, "reload", "m", "--force")

        text = ctl(server, "explain", "m").stdout
        assert f"template started from the spare process {spare}" in text
        facts = ask(server)
        assert facts["is_ahead"]
        assert [] == facts["before"][0]

        os.kill(spare, signal.SIGKILL)
        eventually(lambda: not rows(server, "spares"), 60, "its end")
        assert facts["pid"] == ask(server)["pid"]
        ctl(server, "reload", "m", "--force")
        assert not ask(server)["is_ahead"]


def test_an_environment_of_its_own_has_a_spare_process_of_its_own(tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    command = [sys.executable, "-m", "venv", "--without-pip", str(environment)]
    subprocess.run(command, check=True)
    [library] = environment.glob("lib/python*/site-packages")
    make_packages(library)
    path = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}'
    with Server(
        tmp_path / "server",
        [Written("m", f"{CONFIG} {path}", CODE)],
        options=["--warm-starts=on", f"--runtime-directory={tmp_path}/run"],
        frontends=(),
    ) as server:
        cold = ask(server)
        spare = await_spare(server)

        warm = restart(server)
        assert (False, True) == (cold["is_ahead"], warm["is_ahead"])
        assert (cold["before"], cold["after"]) == (warm["before"], warm["after"])
        assert STUB_OOM_SCORE == int(Path(f"/proc/{warm['pid']}/oom_score_adj").read_text())
        assert str(environment) == rows(server, "spares")[0]["environment"]

        server.kill()
        eventually(lambda: not psutil.pid_exists(spare), 60, "the end of the spare process")
