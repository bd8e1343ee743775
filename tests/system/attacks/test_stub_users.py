"""Models of another user than the server's: what they may not do."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import scripted, stub_user
from tests.support.needs import find_tool
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

SECRET = "the key of the server's certificate"


@pytest.fixture(scope="module", autouse=True)
def another_user() -> None:
    if why := stub_user.why_not():
        pytest.skip(why)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("users")
    options = [
        "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in ("scripted", "other", "spawned")),
        f"--runtime-directory={directory / 'run'}",
        # tests that run all models as nobody say so once more, behind these
        "--stub-user=nobody",
        "--stub-user=daemon",
    ]
    server = Server(directory / "s", options=options, stub_user="nobody", frontends=())
    for name, user in (("scripted", ""), ("other", "daemon"), ("root", "root")):
        more = scripted.string_parameter("stub_user", user) if user else ""
        scripted.add_model(server, "scripted", name, more)
    # with variables or packages of their own, models get a process that is no fork
    scripted.add_model(
        server,
        "scripted",
        "spawned",
        scripted.string_parameter("PYTHON_EXECUTABLE", sys.executable),
    )
    key = directory / "key.pem"
    key.write_text(SECRET)
    key.chmod(0o600)
    with server:
        yield server


def tell(server: Server, model: str, script: str, argument: str = "") -> str:
    return scripted.generate(server, model, script, argument)


@pytest.mark.parametrize(
    ("model", "user"), [("scripted", "nobody"), ("spawned", "nobody"), ("other", "daemon")]
)
def test_models_run_as_their_user_and_get_nothing_back(
    server: Server, model: str, user: str
) -> None:
    script = """
    import json, os
    status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
    words = [status[name].split() for name in ("Uid", "Gid", "CapPrm", "CapEff", "NoNewPrivs")]
    return [reply(json.dumps([words, os.environ["HOME"], os.environ["USER"]]))]
    """

    (uids, gids, permitted, effective, closed), home, name = json.loads(tell(server, model, script))

    entry = pwd.getpwnam(user)
    assert (uids, gids) == ([str(entry.pw_uid)] * 4, [str(entry.pw_gid)] * 4)
    assert {0} == {int(word, 16) for word in (*permitted, *effective)}
    assert (closed, home, name) == (["1"], entry.pw_dir, user)


def test_models_signal_and_read_nothing_of_the_server(server: Server) -> None:
    script = """
    import json, os
    def tries(action):
        try:
            action()
        except OSError as error:
            return type(error).__name__
        return "done"
    found = []
    for pid in json.loads(text_of(request)):
        found.append(tries(lambda: os.kill(pid, 9)))
        found.append(tries(lambda: open(f"/proc/{pid}/mem", "rb").close()))
    return [reply(json.dumps(found))]
    """
    others = [p for role, pids in server.pids().items() if role != "stub" for p in pids]
    others += server.stub_pids("other")

    outcomes = json.loads(tell(server, "scripted", script, json.dumps(others)))

    assert {"PermissionError"} == set(outcomes)


def test_models_find_nothing_in_the_directories_of_the_server(server: Server) -> None:
    script = """
    import json, os
    found = []
    for path in json.loads(text_of(request)):
        try:
            found.append(os.listdir(path) if os.path.isdir(path) else open(path).read())
        except OSError as error:
            found.append(type(error).__name__)
    return [reply(json.dumps(found))]
    """
    directory = server.directory.parent
    own = directory / "run" / "0"
    paths = [directory / "key.pem", own, own / "files"]

    outcomes = json.loads(tell(server, "scripted", script, json.dumps(list(map(str, paths)))))

    assert ["PermissionError"] * 3 == outcomes


def test_models_do_not_bind_what_others_subscribe_to(server: Server) -> None:
    script = """
    import socket
    try:
        socket.socket(socket.AF_UNIX).bind(text_of(request))
    except OSError as error:
        return [reply(type(error).__name__)]
    return [reply("bound")]
    """
    path = server.directory.parent / "run" / "stream-1000"

    assert "PermissionError" == tell(server, "scripted", script, str(path))


def test_a_user_that_was_not_named_is_refused(server: Server) -> None:
    text = "stub_user is 'root', which --stub-user does not allow"
    assert text in server.control_model("load", "root")


def config_of(server: Server, user: str) -> str:
    """Return what loads `scripted` from files that come with the load, as this user."""
    config = server.request_json("/v2/models/scripted/config")[1]
    config["parameters"] = {"stub_user": {"string_value": user}}
    del config["name"], config["instance_group"]
    return json.dumps(config)


def test_files_of_a_load_reach_models_of_both_users(server: Server) -> None:
    before = server.pids()
    code = (server.repository / "scripted" / "1" / "model.py").read_bytes()
    for user in ("nobody", "daemon"):
        config = config_of(server, user)
        script = f"""
        pb_utils.load_model("brought", config={config!r}, files={{"file:1/model.py": {code!r}}})
        return [reply("loaded")]
        """
        assert "loaded" == tell(server, "scripted", script), server.log_text()[-2000:]

        assert user == tell(server, "brought", "import os; return [reply(os.environ['USER'])]")
    assert "" == server.control_model("unload", "brought")
    eventually(lambda: server.pids() == before, 30, "its processes are gone")


def test_a_link_among_the_files_of_a_load_leads_nowhere(server: Server) -> None:
    config = config_of(server, "nobody")
    script = f"""
    import os
    from zmqtriton_floor import staging
    stage = staging.stage
    def stage_with_link(runtime, serial, files):
        name = stage(runtime, serial, files)
        os.symlink(text_of(request), os.path.join(staging.folder(runtime), name, "labels.txt"))
        return name
    staging.stage = stage_with_link
    try:
        pb_utils.load_model("linked", config={config!r}, files={{"file:1/model.py": b"x"}})
    except pb_utils.TritonModelException as error:
        return [reply(str(error))]
    finally:
        staging.stage = stage
    return [reply("loaded")]
    """
    said = tell(server, "scripted", script, str(server.directory.parent / "key.pem"))

    assert "the files of a load must be files" in said
    assert SECRET not in said + server.log_text()


@pytest.mark.long(
    "system/attacks/test_stub_users.py::test_models_run_as_their_user_and_get_nothing_back",
    "system/attacks/test_stub_users.py::test_models_signal_and_read_nothing_of_the_server",
)
def test_who_is_not_root_needs_capabilities_and_they_suffice(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", stub_user="nobody", frontends=())
    scripted.add_model(server, "scripted", "scripted")
    stub_user.open_up(tmp_path)
    for path in (tmp_path / "s", *(tmp_path / "s").rglob("*")):
        os.chown(path, pwd.getpwnam("daemon").pw_uid, -1)
    names = ("chown", "kill", "setgid", "setuid", "sys_nice", "sys_ptrace")
    powers = ",".join(f"+{name}" for name in names)
    setpriv = find_tool("setpriv", package="util-linux")
    daemon = [setpriv, "--reuid=daemon", "--regid=daemon", "--groups=nogroup"]
    server.wrapper = [*daemon, f"--inh-caps={powers}", f"--ambient-caps={powers}"]

    with server:
        script = "import os; return [reply(os.getuid())]"
        assert int(tell(server, "scripted", script)) == pwd.getpwnam("nobody").pw_uid
        server.control_model("load", "scripted")
        readers = server.reader_pids()
        assert readers
        for role, pids in {**server.pids(), "reader": readers}.items():
            for pid in pids:
                status = Path(f"/proc/{pid}/status").read_text().splitlines()
                (powers,) = [line.split()[1] for line in status if line.startswith("CapEff")]
                assert (int(powers, 16) != 0) == (role in ("supervisor", "fork-server")), role

        def can_read_memory(pid: int) -> bool:
            return not subprocess.run([*daemon, "sh", "-c", f": < /proc/{pid}/mem"]).returncode

        with subprocess.Popen([*daemon, "sleep", "60"]) as other:
            eventually(lambda: can_read_memory(other.pid), 30, "its user reads what is not hidden")
            assert [] == [
                pid for pid in (server.pids()["supervisor"] + readers) if can_read_memory(pid)
            ]
            other.kill()
