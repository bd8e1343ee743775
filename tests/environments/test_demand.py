"""The environments that configurations ask for, and their variables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import zmqtriton_protos
from tests.support.refusals import refusal
from zmqtriton.environments.demand import (
    SERVER_ENVIRONMENT,
    Environment,
    EnvironmentSpec,
    resolve_environment,
    variable_overrides,
)
from zmqtriton_floor.errors import InternalError, Unsupported


def demand_of(
    model: Path, *, may_build: bool = False, **parameters: str
) -> Environment | EnvironmentSpec:
    config: Any = zmqtriton_protos.ModelConfig()
    for name, value in parameters.items():
        config.parameters[name].string_value = value
    return resolve_environment(config, model, may_build=may_build)


def environment(root: Path) -> Path:
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "activate").touch()
    (root / "bin" / "python").touch(mode=0o755)
    return root


def test_a_model_that_asks_for_nothing_has_the_servers_own(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").touch()

    assert demand_of(tmp_path) == SERVER_ENVIRONMENT
    assert demand_of(tmp_path, PYTHON_EXECUTABLE=sys.executable) == SERVER_ENVIRONMENT
    assert demand_of(tmp_path, PYTHON_REQUIREMENTS="no", may_build=True) == SERVER_ENVIRONMENT
    assert SERVER_ENVIRONMENT.is_server_environment
    assert not Environment(sys.executable, support_directory="/support").is_server_environment


@pytest.mark.row("B10")
def test_the_directory_of_the_model_can_be_named(tmp_path: Path) -> None:
    root = environment(tmp_path / "python_env")
    archive = tmp_path / "env.tar.gz"
    archive.touch()

    directory = demand_of(tmp_path, EXECUTION_ENV_PATH="$$TRITON_MODEL_DIRECTORY/python_env")
    packed = demand_of(tmp_path, EXECUTION_ENV_PATH="$$TRITON_MODEL_DIRECTORY/env.tar.gz")

    assert directory == EnvironmentSpec("directory", str(root))
    assert isinstance(packed, EnvironmentSpec)
    assert (packed.kind, packed.path) == ("archive", str(archive))


@pytest.mark.row("B10")
def test_what_is_not_there_is_said_as_triton_says_it(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    assert "Failed to get the canonical path for /nowhere/env.tar.gz." == refusal(
        InternalError, demand_of, tmp_path, EXECUTION_ENV_PATH="/nowhere/env.tar.gz"
    )
    assert (
        f"Path {tmp_path}/empty/bin/activate does not exist. The Python environment should "
        "contain an 'activate' script."
    ) == refusal(InternalError, demand_of, tmp_path, EXECUTION_ENV_PATH=str(tmp_path / "empty"))


def test_an_environment_without_a_python_is_refused(tmp_path: Path) -> None:
    (environment(tmp_path / "env") / "bin" / "python").unlink()

    with pytest.raises(InternalError, match="has no bin/python that can be run"):
        demand_of(tmp_path, EXECUTION_ENV_PATH=str(tmp_path / "env"))


def test_a_zip_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"pack the environment as \.tar\.gz"):
        demand_of(tmp_path, EXECUTION_ENV_PATH="/x/env.zip")


def test_an_archive_that_has_changed_is_another_demand(tmp_path: Path) -> None:
    archive = tmp_path / "env.tar.gz"
    archive.touch()
    before = demand_of(tmp_path, EXECUTION_ENV_PATH=str(archive))

    archive.write_text("other")

    assert before != demand_of(tmp_path, EXECUTION_ENV_PATH=str(archive))


def test_requirements_are_asked_for_by_the_model_or_the_server(tmp_path: Path) -> None:
    for name in ("other.txt", "pyproject.toml"):
        (tmp_path / name).touch()
    demands = [
        demand_of(tmp_path, may_build=True),
        demand_of(tmp_path, PYTHON_REQUIREMENTS="yes"),
        demand_of(tmp_path, PYTHON_REQUIREMENTS="other.txt"),
        demand_of(tmp_path, PYTHON_REQUIREMENTS="yes", PYTHON_EXECUTABLE="python3.9"),
    ]
    (tmp_path / "requirements.txt").touch()
    demands.append(demand_of(tmp_path, may_build=True))

    own = sys.executable
    assert [
        ("requirements", "pyproject.toml", own),
        ("requirements", "pyproject.toml", own),
        ("requirements", "other.txt", own),
        ("requirements", "pyproject.toml", "python3.9"),
        ("requirements", "requirements.txt", own),
    ] == [(d.kind, Path(d.path).name, d.python) for d in demands if isinstance(d, EnvironmentSpec)]


def test_requirements_that_are_asked_for_and_missing_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match=r"there is no file .*/mine\.txt"):
        demand_of(tmp_path, PYTHON_REQUIREMENTS="mine.txt")
    with pytest.raises(InternalError, match=r"has no requirements\.txt or pyproject\.toml"):
        demand_of(tmp_path, PYTHON_REQUIREMENTS="yes")


def test_an_environment_comes_before_requirements_and_interpreter(tmp_path: Path) -> None:
    root = environment(tmp_path / "env")
    (tmp_path / "requirements.txt").touch()

    demand = demand_of(
        tmp_path, may_build=True, EXECUTION_ENV_PATH=str(root), PYTHON_EXECUTABLE="python3.9"
    )

    assert demand == EnvironmentSpec("directory", str(root))


# ------------------------------------------------------------------ variables

INHERITED = {
    "PATH": "/bin",
    "LD_LIBRARY_PATH": "/lib",
    "PYTHONPATH": "/mine",
    "VIRTUAL_ENV": "/server",
    "PYTHONHOME": "/server",
    "HOME": "/root",
}


@pytest.mark.row("B11", "B16")
def test_an_environment_is_active_as_its_script_would_make_it(tmp_path: Path) -> None:
    root = environment(tmp_path / "env")

    assert {
        "PATH": f"{root}/bin:/bin",
        "LD_LIBRARY_PATH": f"{root}/lib:/lib",
        "VIRTUAL_ENV": str(root),
        "PYTHONPATH": "/mine",
        "HOME": "/root",
    } == Environment(str(root / "bin" / "python"), str(root)).variables(INHERITED)


def test_of_conda_the_prefix_is_named(tmp_path: Path) -> None:
    root = tmp_path / "env"
    of_conda = Environment("python", str(root), is_conda=True)

    variables = of_conda.variables({"CONDA_PREFIX": "/base"})

    assert str(root) == variables["CONDA_PREFIX"]
    assert "env" == variables["CONDA_DEFAULT_ENV"]
    assert "VIRTUAL_ENV" not in variables
    # No empty part, which would mean the current directory.
    assert f"{root}/lib" == variables["LD_LIBRARY_PATH"]


def test_an_interpreter_is_not_in_the_environment_of_the_server() -> None:
    variables = Environment("/usr/bin/python3").variables(INHERITED)

    assert {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME"} == set(variables)
    assert {} == variable_overrides(SERVER_ENVIRONMENT, INHERITED)
