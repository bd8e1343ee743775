"""This Python, its libraries and other installations."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.diagnosis.doctor.findings import only, texts, write
from zmqtriton.commit import full_version
from zmqtriton.diagnosis.rules import programs
from zmqtriton_floor import __version__

pytestmark = pytest.mark.slow


def test_a_library_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    well = texts(programs.judge_packages())
    metadata = "Metadata-Version: 2.1\nName: falcon\nVersion: 3.0\n"
    write(tmp_path / "falcon-3.0.dist-info" / "METADATA", metadata)
    monkeypatch.syspath_prepend(str(tmp_path))

    text = only(programs.judge_packages())

    assert [] == well
    assert "error: the library falcon is 3.0; zmqtriton needs falcon" in text


def test_the_clients_package_beside_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    well = [*programs.judge_installations()]
    metadata = "Metadata-Version: 2.1\nName: zmqtriton-client\nVersion: 7.8\n"
    write(tmp_path / "zmqtriton_client-7.8.dist-info" / "METADATA", metadata)
    monkeypatch.syspath_prepend(str(tmp_path))

    [finding] = [one for one in programs.judge_installations() if one not in well]

    assert "warning: zmqtriton-client 7.8 is installed beside the server" in only([finding])
    removal, installation = finding.commands
    assert removal.endswith("-m pip uninstall --yes zmqtriton-client")
    assert "-m pip install --force-reinstall" in installation


@pytest.mark.parametrize(
    ("markers", "is_for_here"),
    [
        ("", True),
        (' python_version < "3"', False),
        (' python_version >= "3.8"', True),
        (' python_version >= "3.8" and extra == "ray"', False),
        (" extra == 'ray'", False),
        (' sys_platform != "win32"', True),
        (' sys_platform == "win32"', False),
    ],
)
def test_libraries_are_needed_where_their_markers_hold(markers: str, is_for_here: bool) -> None:
    assert is_for_here == programs.is_for_here(markers)


@pytest.mark.parametrize(
    ("version", "conditions", "is_accepted"),
    [
        ("4.1.0", ">=4.1,<5", True),
        ("5.0", ">=4.1,<5", False),
        ("4.0.9", ">=4.1,<5", False),
        ("27.0.1rc1", ">=27,<28", True),
        ("1.0", "", True),
        ("", "", False),
    ],
)
def test_versions_are_compared_by_their_numbers(
    version: str, conditions: str, is_accepted: bool
) -> None:
    assert is_accepted == programs.is_accepted(version, conditions)


def test_another_installation_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = os.path.dirname(sys.executable)
    monkeypatch.setenv("PATH", beside)
    well = texts(programs.judge_installations())
    other = tmp_path / "zmqtriton"
    write(other, "#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{beside}")
    text = only(programs.judge_installations())
    other.unlink()
    other.symlink_to(f"{beside}/zmqtriton")

    assert [] == well
    assert f"note: PATH has another installation: {other}" == text
    assert [] == texts(programs.judge_installations()), "a link to this one"


def test_a_server_and_files_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    version, own = importlib.metadata.version("zmqtriton"), full_version()
    monkeypatch.setattr(programs, "__version__", "0.0.1")

    of_server, mixed = texts(programs.judge_installations(7, "9+0123456789ab"))

    assert (
        f"warning: the server is zmqtriton 9+0123456789ab, and this program is {own}" == of_server
    )
    assert f"warning: the code is zmqtriton 0.0.1, and its package says {version}" == mixed


def test_a_server_and_a_package_of_this_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = f"{__version__}+20260131120000.g0123456789ab"
    metadata = f"Metadata-Version: 2.1\nName: zmqtriton\nVersion: {version}\n"
    write(tmp_path / f"zmqtriton-{version}.dist-info" / "METADATA", metadata)
    monkeypatch.syspath_prepend(str(tmp_path))

    assert [] == texts(programs.judge_installations(7, full_version()))


def test_pythons_that_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"CONFIG_ARGS": "'--prefix=/opt'", "PY_CORE_CFLAGS": "-O3", "Py_DEBUG": 0}
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: settings[name])
    monkeypatch.setattr(sys, "base_prefix", "/opt")
    slow = only(programs.judge_interpreter())
    settings["Py_DEBUG"] = 1
    debug = only(programs.judge_interpreter())
    settings.update(Py_DEBUG=0, CONFIG_ARGS="--enable-optimizations")

    assert f"note: {sys.executable} was built without --enable-optimizations" in slow
    assert f"warning: {sys.executable} is a debug build" in debug
    assert [] == texts(programs.judge_interpreter())
