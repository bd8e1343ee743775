"""A server takes the place of another in its named directory, by itself or by a command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.replacements.ways import ByTakeOver, InOneDirectory, Systemd
from tests.support import stub_user
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.replacements.replacing import SMALL, pids_in
from zmqtriton.commit import full_version

pytestmark = pytest.mark.system


@pytest.fixture
def way(tmp_path: Path) -> InOneDirectory:
    way = InOneDirectory(tmp_path, SMALL)
    way.models, way.frontends = ("add_sub",), ()
    return way


def _replace(way: ByTakeOver, *words: str) -> Any:
    command = [sys.executable, "-m", "zmqtriton.ctl.main", "--server", f":{way.http_port}"]
    return subprocess.run(
        [*command, "replace", *words], capture_output=True, text=True, timeout=300, check=False
    )


def test_a_server_is_replaced_by_a_command(way: InOneDirectory) -> None:
    with way:
        [server] = way.servers
        before = server.pid
        imports = server.repository / "add_sub" / "1" / "model.py"
        text = imports.read_text()
        imports.write_text(f"{text}\nraise ValueError('no weights')\n")
        refused = _replace(way)
        assert (1, [before]) == (refused.returncode, pids_in(way.runtime))
        assert "the running server goes on" in refused.stderr
        assert "no weights" in refused.stderr

        assert 200 == server.status("/v2/models/add_sub/ready")

        told = server.request_json("/v2/logging", {"log_verbose_level": 1})
        imports.write_text(text)
        for how in ([], ["--one-by-one"]):
            done = _replace(way, *how, "-o", "json")
            assert 0 == done.returncode, done.stderr
            answer = json.loads(done.stdout)
            assert before == answer["before"]
            assert f'the new server is {full_version()}, the same as before"' in done.stderr
            assert full_version() == answer["version"] == answer["version_before"]
            assert 0 == server.wait(60)
            before = answer["pid"]
            assert [before] == pids_in(way.runtime)
            assert server.is_ready()
        assert told == server.request_json("/v2/logging")
        os.kill(answer["pid"], signal.SIGTERM)
        eventually(lambda: not way.runtime.exists(), 60, "it has ended")


_SCRIPT = """#!{python}
import sys
from zmqtriton.main import main
sys.exit(main())
"""


def _make_environment(folder: Path) -> Path:
    """Make an environment with this one's packages, and return its server's program."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    own = sysconfig.get_path("purelib")
    (packages / "other.pth").write_text(f"import site; site.addsitedir({own!r})\n")
    program = folder / "bin" / "zmqtriton"
    program.write_text(_SCRIPT.format(python=folder / "bin" / "python"))
    program.chmod(0o755)
    return program


@pytest.mark.long("system/replacements/test_directories.py::test_a_server_is_replaced_by_a_command")
def test_a_server_is_replaced_by_the_one_to_which_a_link_leads_by_now(
    way: InOneDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("old", "new")]
    program = tmp_path / "current" / _make_environment(folders[0]).relative_to(folders[0])
    _make_environment(folders[1])
    usual = vars(Server)["command"].fget

    def command(server: Server) -> list[str]:
        words: list[str] = usual(server)
        place = words.index("-m")
        return [*words[: place - 1], str(program), *words[place + 2 :]]

    monkeypatch.setattr(Server, "command", property(command))
    link = program.parent.parent
    link.symlink_to(folders[0])
    with way:
        for folder in reversed(folders):
            link.unlink()
            link.symlink_to(folder)
            done = _replace(way, "-o", "json")
            assert 0 == done.returncode, done.stderr
            pid = json.loads(done.stdout)["pid"]
            assert str(folder / "bin" / "python") == psutil.Process(pid).cmdline()[0]
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: not way.runtime.exists(), 60, "it has ended")


#: A view of /proc that hides the processes of other users, and a user who is not root there.
_HIDDEN = 'mount -t proc -o hidepid=2 proc /proc; exec setpriv --reuid=nobody --clear-groups "$@"'


@pytest.mark.long(
    "system/replacements/test_directories.py::test_a_server_is_replaced_by_a_command",
    "supervisor/control/test_succession.py::test_what_systemd_runs_is_replaced_within_its_service",
)
@pytest.mark.parametrize("is_hidden", [False, True], ids=["seen", "hidden"])
def test_a_server_behind_sockets_of_systemd_is_replaced_by_a_command(
    tmp_path: Path, is_hidden: bool
) -> None:
    if is_hidden and (reason := stub_user.why_not()):
        pytest.skip(reason)
    runtime = tmp_path / "run"
    options = (*SMALL, f"--runtime-directory={runtime}")
    server = Server(tmp_path / "s", ["add_sub"], options=options, stub_user="")
    systemd = Systemd(server, "http,grpc")
    command = [sys.executable, "-m", "zmqtriton.ctl.main", f"--runtime-directory={runtime}"]
    if is_hidden:
        stub_user.open_up(tmp_path)
        tmp_path.chmod(0o777)
        view = ["env", f"HOME={tmp_path}", "unshare", "--mount", "sh", "-c", _HIDDEN, "sh"]
        server.wrapper = stub_user.within_reach(view)
    systemd.start()
    pid = server.pid
    try:
        eventually(server.is_ready, 60, "it serves")
        if is_hidden:
            view = ["nsenter", f"--target={pid}", "--mount", "setpriv", "--reuid=nobody"]
            command = [*view, "--clear-groups", *command]
        done = subprocess.run(
            [*command, "replace", "-o", "json"], capture_output=True, text=True, check=False
        )
        assert 0 == done.returncode, done.stderr
        pid = json.loads(done.stdout)["pid"]
        assert 0 == server.wait(60)
        assert [pid] == pids_in(runtime)
        assert server.is_ready()
    finally:
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: not runtime.exists(), 60, "it has ended")
        systemd.close()


# --------------------------------------------------------------------------------------- one by one
# A server takes the place of another one whose models do not fit twice: requests wait.


@pytest.mark.long(
    "supervisor/control/test_succession.py::test_models_move_when_the_server_before_has_ended",
    "system/replacements/test_directories.py::test_a_server_is_replaced_by_a_command",
)
def test_the_command_tells_the_longest_wait_and_goes_back_if_the_new_server_dies(
    tmp_path: Path,
) -> None:
    way = InOneDirectory(tmp_path)
    way.start()
    [server] = way.servers
    imports = server.block_imports("add_sub")
    imports.touch()

    def begin() -> Any:
        command = [sys.executable, "-m", "zmqtriton.ctl.main", "--server", f":{way.http_port}"]
        return subprocess.Popen(
            [*command, "replace", "--one-by-one", "-o", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    pids = []
    try:
        dying = begin()
        assert 0 == server.wait(60)
        [killed] = eventually(lambda: pids_in(way.runtime), 60, "it is alone")
        os.kill(killed, signal.SIGKILL)
        _, said = dying.communicate(timeout=60)
        pids = pids_in(way.runtime)
        assert 1 == dying.returncode
        assert f"status -9; the one before is started again, as pid {pids[0]}" in said

        imports.unlink()
        eventually(server.is_ready, 60, "it serves")
        done, said = begin().communicate(timeout=300)
        assert re.search(r"requests wait for up to \d+ s: .* within 90 s, .* in [\d.]+ s \(", said)
        assert server.is_ready()
        assert pids == [json.loads(done)["before"]]
        pids = pids_in(way.runtime)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        eventually(lambda: not way.runtime.exists(), 60, "it has ended")
        way.close()
