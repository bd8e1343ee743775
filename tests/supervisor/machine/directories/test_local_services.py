"""Sockets of local services, by declarations as add-ons make them."""

from __future__ import annotations

import gc
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from zmqtriton import addons
from zmqtriton.addons import LocalService
from zmqtriton.options import Options
from zmqtriton.supervisor.machine.directories.local_services import (
    bind_local_services,
    services_of,
)
from zmqtriton.supervisor.machine.directories.runtime import DirectoryError

#: Any options of these kinds do.
_FIRST = LocalService("First", "allow_openai", "announce_host", "http_restricted_api")
_SECOND = LocalService("Second", "allow_sagemaker", "id", "grpc_restricted_protocol")
_BOTH = Options(allow_openai=True, allow_sagemaker=True, announce_host="", id="")
_OWN_GROUP = os.getgid()


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    services = {"first": _FIRST, "second": _SECOND}
    monkeypatch.setattr(addons, "local_services", lambda: services)


@pytest.fixture
def directory() -> Iterator[Path]:
    """One with a short path, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="zt", dir="/tmp") as name:
        yield Path(name)


def bind(options: Options, directory: Path, models: int | None = None) -> dict[str, int]:
    """Bind, close, and return the modes of the files by the names of the services."""
    sockets = bind_local_services(options, directory, models)
    for bound in sockets.values():
        bound.close()
    return {name: stat.S_IMODE((directory / name).stat().st_mode) for name in sockets}


def test_a_service_that_is_turned_on_has_a_socket_for_the_server_s_user(directory: Path) -> None:
    options = replace(_BOTH, allow_sagemaker=False)

    assert {"first": _FIRST} == services_of(options)
    assert {"first": 0o600} == bind(options, directory)
    assert ["first"] == os.listdir(directory)


def test_a_group_may_connect_and_enter_the_directory(directory: Path) -> None:
    options = replace(_BOTH, announce_host=str(_OWN_GROUP))

    assert {"first": 0o660, "second": 0o600} == bind(options, directory)
    assert _OWN_GROUP == (directory / "first").stat().st_gid
    assert 0o710 == stat.S_IMODE(directory.stat().st_mode)


@pytest.mark.parametrize("models", [None, _OWN_GROUP])
def test_one_group_may_enter_the_directory(directory: Path, models: int | None) -> None:
    options = replace(_BOTH, announce_host=str(_OWN_GROUP), id=str(_OWN_GROUP + 1))

    with pytest.raises(DirectoryError, match=r"^--id: one group may enter the runtime directory"):
        bind(options, directory, models)


def test_an_error_names_the_option_and_leaves_no_socket_bound(directory: Path) -> None:
    (directory / "second").touch()
    gc.collect()  # what earlier tests left must not be closed meanwhile
    before = set(os.listdir("/proc/self/fd"))

    with pytest.raises(DirectoryError) as refused:
        bind(_BOTH, directory)

    path = directory / "second"
    text = f"--allow-sagemaker: cannot make the socket '{path}': Address already in use"
    assert text == str(refused.value)
    assert before == set(os.listdir("/proc/self/fd")), "while the traceback has the sockets"


def test_a_group_that_does_not_exist_is_an_error(directory: Path) -> None:
    with pytest.raises(DirectoryError, match=r"^--id: there is no group 'nobody\+'$"):
        bind(replace(_BOTH, id="nobody+"), directory)
