"""The Dockerfile and the compose files: what is often wrong in such files is right in ours."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.releases.test_packaging import installed_beside, shipped_files
from tests.standard.deploy.dockerfile import Instruction, context_files, read
from tests.support.needs import ROOT
from zmqtriton.options import Options

FILES = ROOT / "deploy" / "docker"
INSTRUCTIONS = read(FILES / "Dockerfile")


def of(name: str, stage: int) -> list[Instruction]:
    return [one for one in INSTRUCTIONS if one.name == name and one.stage == stage]


def compose(name: str = "compose.yaml") -> dict[str, Any]:
    return yaml.safe_load((FILES / name).read_text("utf-8"))


def test_images_have_a_version_and_steps_leave_no_caches() -> None:
    images = [one.value for one in INSTRUCTIONS if one.name == "FROM"]
    steps = [one.value for one in INSTRUCTIONS if one.name == "RUN"]

    assert ["python:${PYTHON}-slim AS build", "python:${PYTHON}-slim"] == images
    assert all("--no-cache-dir" in step for step in steps if "pip install" in step)
    assert not [step for step in steps if "sudo" in step or "curl" in step or "apt" in step]
    assert not [one for one in INSTRUCTIONS if one.name == "ADD"]


def test_the_last_stage_has_nothing_of_the_context_and_runs_as_a_number() -> None:
    [copied] = of("COPY", 1)
    [user] = of("USER", 1)
    order = [one.name for one in INSTRUCTIONS if one.stage == 1]

    assert copied.value.startswith("--from=build ")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user.value)
    assert order.index("RUN") < order.index("USER") < order.index("ENTRYPOINT")


def test_what_runs_is_no_shell_that_would_keep_signals() -> None:
    [entry], [command], [signal] = of("ENTRYPOINT", 1), of("CMD", 1), of("STOPSIGNAL", 1)
    [health] = of("HEALTHCHECK", 1)

    assert ["zmqtriton"] == entry.words
    assert "--model-repository=/models" in command.words
    assert "SIGTERM" == signal.value
    assert health.value.endswith('CMD ["zmqtriton-ctl", "wait", "--timeout", "0"]')


@pytest.mark.slow
def test_the_context_has_what_a_wheel_is_made_of_and_no_more() -> None:
    paths = {str(path) for path in context_files(ROOT, FILES / "Dockerfile.dockerignore")}

    needed = {str(path.relative_to(ROOT)) for path, _ in (*shipped_files(), *installed_beside())}
    assert needed | {"setup.cfg", "pyproject.toml", "LICENSE"} <= paths
    assert not [name for name in paths if name.startswith(("tests/", ".", "build/"))]
    assert not [name for name in paths if "__pycache__" in name]


def test_compose_waits_longer_than_the_server_and_publishes_what_the_image_exposes() -> None:
    server = compose()["services"]["zmqtriton"]
    [exposed] = of("EXPOSE", 1)

    assert int(server["stop_grace_period"].removesuffix("s")) > Options().exit_timeout_secs + 5
    assert exposed.value.split() == [port.rpartition(":")[2] for port in server["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])
    assert server["read_only"] is True
    assert ["ALL"] == server["cap_drop"]


def test_compose_mounts_files_that_the_other_kinds_write() -> None:
    services = compose()["services"]
    mounted = [
        volume.partition(":")[0].removeprefix("./")
        for name in ("prometheus", "grafana")
        for volume in services[name]["volumes"]
        if volume.startswith("./")
    ]

    assert 4 == len(mounted)
    assert all((ROOT / "deploy" / path).is_file() for path in mounted)
    assert set(compose("compose.gpu.yaml")["services"]) <= set(services)


def test_what_is_written_outside_of_volumes_fails_so_all_of_it_is_one() -> None:
    server = compose()["services"]["zmqtriton"]
    [environment] = of("ENV", 1)

    writable = [
        *server["tmpfs"],
        *(v.split(":")[1] for v in server["volumes"] if "/models" not in v),
    ]
    assert ["/tmp", "/run/zmqtriton", "/home/zmqtriton"] == writable
    assert "RUNTIME_DIRECTORY=/run/zmqtriton/server" in environment.value
    # a tmpfs has the mode of what it is mounted on, and belongs to root; KServe has another user
    open_to_all = "install -d -m 1777 /run/zmqtriton /home/zmqtriton "
    assert any(open_to_all in step.value for step in of("RUN", 1))
    assert "HOME=/home/zmqtriton" in environment.value


def test_commands_for_the_image_of_triton_are_those_of_this_one() -> None:
    [entry] = of("ENTRYPOINT", 1)
    [made] = [step.value for step in of("RUN", 1) if "useradd" in step.value]

    assert ["zmqtriton"] == entry.words, "to which `tritonserver` is a word that is left out"
    assert "ln -s /opt/zmqtriton/bin/tritonserver /opt/tritonserver/bin/tritonserver" in made
