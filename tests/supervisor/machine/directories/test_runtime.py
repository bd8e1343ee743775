"""The directories of a server, and what others find there."""

from __future__ import annotations

import fcntl
import gc
import importlib.util
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from zmqtriton import addons
from zmqtriton.options import Options
from zmqtriton.roles import services_of
from zmqtriton.sdk.addon import Process
from zmqtriton.supervisor.machine.directories import runtime as runtime_directory
from zmqtriton.supervisor.machine.directories.claims import claim_storage
from zmqtriton.supervisor.machine.directories.runtime import (
    DirectoryError,
    RuntimeDirectory,
    bind_local_services,
    claim,
    remove_stale,
)
from zmqtriton_floor import staging

# ----------------------------------------------------------------------------- runtime


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory with a short path, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="zt", dir="/tmp") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
        monkeypatch.setenv("TMPDIR", name)
        yield Path(name)


def test_a_new_directory_is_private_and_vanishes(temporary: Path) -> None:
    claimed = claim()

    assert claimed.path.parent == temporary
    assert claimed.path.stat().st_mode & 0o777 == 0o700
    claimed.remove()
    assert list(temporary.iterdir()) == []


def test_without_a_place_for_a_new_directory_the_reason_names_what_helps(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "missing"))

    with pytest.raises(DirectoryError, match=r"No such file.*--runtime-directory or TMPDIR"):
        claim()


def test_what_a_dead_process_has_left_is_removed(temporary: Path) -> None:
    directory = claim()
    for serial in (4, 41):
        (directory.path / f"stream-{serial}").touch()

    for _ in range(2):
        directory.remove_process_files(4)

    assert ["stream-41"] == [path.name for path in directory.path.glob("stream-*")]
    directory.remove()


@pytest.mark.parametrize("name", ["thesis.tex", "lock.d", ".config", "1"])
def test_a_directory_with_files_of_others_is_refused_and_not_touched(
    temporary: Path, name: str
) -> None:
    path = temporary / "home"
    path.mkdir(mode=0o755)
    (path / name).mkdir()
    (path / name / "model.py").touch()
    (path / "requests-1").touch()

    with pytest.raises(DirectoryError, match=f"it has '{name}', which is no server's"):
        claim(str(path))

    assert {name, "model.py", "requests-1"} == {entry.name for entry in path.rglob("*")}
    assert path.stat().st_mode & 0o777 == 0o755


def test_sockets_that_an_earlier_server_has_left_are_no_hindrance(temporary: Path) -> None:
    path = temporary / "given"
    path.mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path / "spans"))

    claim(str(path)).remove()

    assert ["lock"] == [entry.name for entry in path.iterdir()]


def test_a_directory_in_use_is_refused(temporary: Path) -> None:
    first = claim(str(temporary / "given"))

    with pytest.raises(DirectoryError, match="in use by another server"):
        claim(str(temporary / "given"))

    first.remove()


def _bind(claimed: RuntimeDirectory) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(claimed.control_path))
    return bound


def _shown(named: Path) -> Path:
    return (named / "ctl").resolve().parent


def test_two_servers_are_in_a_named_directory_while_one_takes_over(temporary: Path) -> None:
    named = temporary / "given"
    first = claim(str(named), group=os.getgid())
    with _bind(first):
        first.show()
        second = claim(str(named), group=os.getgid(), predecessor=named)
        with _bind(second):
            assert (first.path, 0o710) == (_shown(named), named.stat().st_mode & 0o777)
            with pytest.raises(DirectoryError, match="in use by another server"):
                claim(str(named), predecessor=temporary / "elsewhere")

            second.show()
            assert second.path == _shown(named)
            assert not first.is_hidden
            first.remove()
            assert {"lock", "ctl", second.path.name} == {each.name for each in named.iterdir()}
            third = claim(str(named), predecessor=second.path)
            second.remove()  # before the third one is shown
            assert {"lock", third.path.name} == {each.name for each in named.iterdir()}
            with _bind(third):
                third.show()
    third.remove()

    assert [] == list(temporary.iterdir())


@pytest.mark.parametrize("who", ["the old one", "the new one"])
def test_a_server_that_is_killed_while_it_is_replaced_leaves_nothing(
    temporary: Path, who: str
) -> None:
    named = temporary / "given"
    first = claim(str(named))
    with _bind(first):
        first.show()
        second = claim(str(named), predecessor=named)
        with _bind(second):
            second.show()
            killed, left = (first, second) if who == "the old one" else (second, first)
            os.close(killed._lock_descriptor)  # as its end would

            assert (who == "the new one") == left.is_hidden
            left.show()
            assert left.path == _shown(named)
            left.remove()

    assert [] == list(temporary.iterdir())


def test_a_path_that_is_too_long_for_sockets_is_refused(temporary: Path) -> None:
    with pytest.raises(DirectoryError, match="too long for sockets"):
        claim(str(temporary / ("x" * 100)))


def test_directories_of_dead_servers_are_swept_and_others_are_not(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = temporary / "zmqtriton-dead"
    dead.mkdir()
    (dead / "lock").touch()
    (dead / "requests-1").touch()
    being_made = temporary / "zmqtriton-young"
    being_made.mkdir()
    other = temporary / "something"
    other.mkdir()
    (other / "lock").touch()
    (temporary / "zmqtriton-link").symlink_to(other)
    with monkeypatch.context() as of_nobody:
        of_nobody.setattr(os, "geteuid", lambda: os.getuid() + 1)
        remove_stale(temporary)
        assert dead.exists()

    alive = claim()
    remove_stale(temporary)

    assert not dead.exists()
    assert {being_made, other, alive.path, temporary / "zmqtriton-link"} == set(temporary.iterdir())
    alive.remove()


def test_a_start_sweeps_no_named_directory_with_a_living_server(temporary: Path) -> None:
    named = temporary / f"{runtime_directory.PREFIX}named"
    alive = claim(str(named))

    remove_stale(temporary)

    assert alive.path.exists()
    os.close(alive._lock_descriptor)  # as if it was killed
    remove_stale(temporary)
    assert not named.exists()


def test_children_do_not_inherit_the_lock(temporary: Path) -> None:
    claimed = claim()

    # a child that had it would hold the directory when we have ended
    assert not os.get_inheritable(claimed._lock_descriptor)
    claimed.remove()


def test_files_of_a_dead_process_go_unless_a_load_holds_them(tmp_path: Path) -> None:
    directory = claim(str(tmp_path))
    files = directory.path / "files"
    names = [staging.stage(str(files.parent), n, {"file:1/a": b"x"}) for n in (7, 7, 77)]
    held = str(files / names[1])

    directory.remove_process_files(7, {held})

    assert set(names[1:]) == {path.name for path in files.iterdir()}
    directory.remove()
    assert ["lock"] == [path.name for path in tmp_path.iterdir()]


def test_files_of_a_server_that_was_killed_are_swept(tmp_path: Path) -> None:
    staging.stage(str(tmp_path), 7, {"file:1/a": b"x"})

    claim(str(tmp_path)).remove()

    assert ["lock"] == [path.name for path in tmp_path.iterdir()]


def _is_locked(directory: Path) -> bool:
    """True if systemd-tmpfiles would leave the directory alone, which locks what it looks at."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@pytest.mark.parametrize("what", ["directory", "socket", "other"])
def test_what_is_taken_away_is_noticed_and_made_again(temporary: Path, what: str) -> None:
    claimed = claim(group=os.getgid())
    claimed.control_path.touch()
    assert not claimed.is_lost

    if what == "socket":
        claimed.control_path.unlink()
    else:
        shutil.rmtree(claimed.path)
    if what == "other":
        claimed.path.mkdir()
        claimed.control_path.touch()
    assert claimed.is_lost
    claimed.restore()

    claimed.control_path.touch()
    assert not claimed.is_lost
    assert _is_locked(claimed.path)
    assert 0o710 == claimed.path.stat().st_mode & 0o777
    assert 0o1733 == (claimed.path / "files").stat().st_mode & 0o7777
    remove_stale(temporary)
    assert claimed.path.exists(), "the next server sees that it is in use"
    claimed.remove()
    assert [] == list(temporary.iterdir())


def test_a_directory_that_somebody_else_has_made_is_not_taken(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = claim()
    shutil.rmtree(claimed.path)
    claimed.path.symlink_to("/etc")

    with pytest.raises((DirectoryError, OSError)):
        claimed.restore()

    claimed.path.unlink()
    claimed.remove()


# ---------------------------------------------------------------------- local services
# Sockets of local services, by declarations as add-ons make them.


#: Any options of these kinds do.
_FIRST = Process("", "take_over", group="config", restrictions="http_restricted_api")


_SECOND = Process("", "load_on_demand", group="id", restrictions="grpc_restricted_protocol")


_BOTH = Options(take_over=True, load_on_demand=True, config="", id="")


_OWN_GROUP = os.getgid()


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    services = {"first": _FIRST, "second": _SECOND}
    monkeypatch.setattr(addons, "services", lambda: services)


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
    options = replace(_BOTH, load_on_demand=False)

    assert {"first": _FIRST} == services_of(options)
    assert {"first": 0o600} == bind(options, directory)
    assert ["first"] == os.listdir(directory)


def test_a_group_may_connect_and_enter_the_directory(directory: Path) -> None:
    options = replace(_BOTH, config=str(_OWN_GROUP))

    assert {"first": 0o660, "second": 0o600} == bind(options, directory)
    assert _OWN_GROUP == (directory / "first").stat().st_gid
    assert 0o710 == stat.S_IMODE(directory.stat().st_mode)


@pytest.mark.parametrize("models", [None, _OWN_GROUP])
def test_one_group_may_enter_the_directory(directory: Path, models: int | None) -> None:
    options = replace(_BOTH, config=str(_OWN_GROUP), id=str(_OWN_GROUP + 1))

    with pytest.raises(DirectoryError, match=r"^--id: one group may enter the runtime directory"):
        bind(options, directory, models)


def test_an_error_names_the_option_and_leaves_no_socket_bound(directory: Path) -> None:
    (directory / "second").touch()
    gc.collect()  # what earlier tests left must not be closed meanwhile
    before = set(os.listdir("/proc/self/fd"))

    with pytest.raises(DirectoryError) as refused:
        bind(_BOTH, directory)

    path = directory / "second"
    text = f"--load-on-demand: cannot make the socket '{path}': Address already in use"
    assert text == str(refused.value)
    assert before == set(os.listdir("/proc/self/fd")), "while the traceback has the sockets"


def test_a_group_that_does_not_exist_is_an_error(directory: Path) -> None:
    with pytest.raises(
        DirectoryError, match=r"^--id: there is no group 'nobody\+'; make it with groupadd$"
    ):
        bind(replace(_BOTH, id="nobody+"), directory)


# ----------------------------------------------------------------------------- storage


def test_directories_need_none() -> None:
    assert None is claim_storage(())


@pytest.mark.extra("storage")
@pytest.mark.row("F21")
def test_without_the_library_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(DirectoryError, match=r"'s3://b/m' needs .* pip install obstore"):
        claim_storage(("s3://b/m",))


@pytest.mark.extra("storage")
def test_a_url_of_another_form_is_refused_and_so_is_a_directory_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(DirectoryError, match="must be s3://"):
        claim_storage(("s3://",))

    monkeypatch.setenv("TRITON_AWS_MOUNT_DIRECTORY", str(tmp_path / "missing"))
    with pytest.raises(DirectoryError, match=r"cannot be kept in '.*missing': No such file"):
        claim_storage(("s3://b",))


@pytest.mark.extra("storage")
def test_it_is_private_and_where_the_variable_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv("TRITON_AWS_MOUNT_DIRECTORY", str(tmp_path))

    directory = claim_storage(("s3://b",))

    assert directory is not None
    assert (tmp_path, 0o700) == (directory.path.parent, directory.path.stat().st_mode & 0o777)
    directory.remove()
    assert [] == list(tmp_path.iterdir())
