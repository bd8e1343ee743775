"""Files in /dev/shm that a client may not open, registered as its shared memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest

from tests.support import stub_user
from tests.support.needs import find_tool
from tests.support.raw_http import raw_request
from tests.support.server import ROOT as ROOT_DIRECTORY
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.server(models=["identity_fp32"])]

#: Users that nothing else of this machine is.
ALICE, BOB, SERVER = (50_000 + 3 * (os.getpid() % 3000) + number for number in range(3))
ROOT = 0
SIZE = 64
SECRET = b"root's own".ljust(SIZE)
KEY = f"zmqtriton_{os.getpid()}_others"
PATH = Path("/dev/shm", KEY)
#: Makes a region, if it is to, registers it, and has a model copy its first half to its second.
_CLIENT = """
import os, sys
import numpy as np
kind, address, user, key, mode = sys.argv[1:]
import tritonclient.utils.shared_memory as shm
if kind == "http":
    import tritonclient.http as module
else:
    import tritonclient.grpc as module
os.setgroups([])
os.setgid(int(user))
os.setuid(int(user))
half = np.arange(8, dtype=np.float32)
if mode:
    region = shm.create_shared_memory_region("own", key, 64)
    shm.set_shared_memory_region(region, [half])
    os.chmod(f"/dev/shm/{key}", int(mode, 8))
try:
    with module.InferenceServerClient(address) as client:
        client.register_system_shared_memory("r", key, 64)
        source = module.InferInput("INPUT0", [8], "FP32")
        source.set_shared_memory("r", 32)
        target = module.InferRequestedOutput("OUTPUT0")
        target.set_shared_memory("r", 32, 32)
        client.infer("identity_fp32", [source], outputs=[target])
        client.unregister_system_shared_memory("r")
    print("copied")
except module.InferenceServerException as error:
    print(error.message())
if mode:
    assert (shm.get_contents_as_numpy(region, np.float32, [8]) == half).all()
    shm.destroy_shared_memory_region(region)
"""
#: Registers a region at the door, as a member of its group.
_DOOR_CLIENT = """
import os, sys
path, user, key = sys.argv[1:]
from zmqtriton_extras.door.tests.raw_door import RawDoor
os.setgroups([])
os.setgid(0)
os.setuid(int(user))
with RawDoor(path) as door:
    region = {"name": "r", "key": key, "byte_size": 64}
    kind, fields, _ = door.ask("shared_memory.register", region)
    print("registered" if kind == "answer" else fields["text"])
    door.ask("shared_memory.unregister", {"name": "r"})
"""
REFUSED = f"Unable to open shared memory region: '{KEY}'"


@contextmanager
def serving(*options: str, user: int = ROOT) -> Iterator[Server]:
    """Serve as that user, in a directory that all may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        words = [option.replace("@DIRECTORY@", name) for option in options]
        server = Server(
            directory / "s", models=["identity_fp32"], options=words, frontends=["grpc"]
        )
        if user != ROOT:
            setpriv = find_tool("setpriv", package="util-linux")
            words = [setpriv, f"--reuid={user}", f"--regid={user}", "--clear-groups"]
            server.wrapper = stub_user.within_reach(words)
        stub_user.open_up(directory)
        with server:
            yield server


@pytest.fixture(scope="module", autouse=True)
def another_user() -> None:
    if why := stub_user.why_not():
        pytest.skip(why)


@pytest.fixture(scope="module")
def of_another_user() -> Iterator[Server]:
    with serving(user=SERVER) as server:
        yield server


@pytest.fixture
def file() -> Iterator[Path]:
    """A file of root's that nobody else may open."""
    PATH.write_bytes(SECRET)
    PATH.chmod(0o600)
    yield PATH
    PATH.unlink()


def ask_door(server: Server, user: int) -> str:
    path = f"{server.directory.parent}/r/door"
    done = subprocess.run(
        stub_user.within_reach([sys.executable, "-c", _DOOR_CLIENT, path, str(user), KEY]),
        cwd=ROOT_DIRECTORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def ask(server: Server, kind: str, user: int, *, own_mode: str = "") -> str:
    """Return what became of a client of that user, with a region of its own if it has a mode."""
    address = server.url[7:] if kind == "http" else server.grpc_address
    client = [sys.executable, "-c", _CLIENT, kind, address, str(user), KEY, own_mode]
    done = subprocess.run(
        stub_user.within_reach(client),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "kind",
    [
        "http",
        pytest.param(
            "grpc",
            marks=pytest.mark.long(
                "system/attacks/test_files_of_others.py::test_a_client_of_any_user_gets_its_own_memory"
            ),
        ),
    ],
)
def test_a_client_gets_no_file_that_it_could_not_open(
    server: Server, file: Path, kind: str
) -> None:
    os.chown(file, BOB, BOB)
    file.chmod(0o644)
    assert REFUSED == ask(server, kind, ALICE)
    assert SECRET == file.read_bytes()

    assert "copied" == ask(server, kind, BOB)
    file.chmod(0o666)
    assert "copied" == ask(server, kind, ALICE)
    assert SECRET[:32] * 2 == file.read_bytes()
    assert 1 == server.log_text().count("refused to register")


@pytest.mark.parametrize(
    "mode",
    [
        "0600",
        pytest.param(
            "0666",
            marks=pytest.mark.long(
                "system/attacks/test_files_of_others.py::test_a_client_of_any_user_gets_its_own_memory"
            ),
        ),
    ],
)
@pytest.mark.parametrize(
    "kind",
    [
        "grpc",
        pytest.param(
            "http",
            marks=pytest.mark.long(
                "system/attacks/test_files_of_others.py::test_a_client_gets_no_file_that_it_could_not_open"
            ),
        ),
    ],
)
def test_a_client_of_any_user_gets_its_own_memory(server: Server, kind: str, mode: str) -> None:
    assert "copied" == ask(server, kind, ALICE, own_mode=mode)


@pytest.mark.long(
    "system/attacks/test_files_of_others.py::test_a_client_gets_no_file_that_it_could_not_open"
)
def test_the_door_tells_members_of_its_group_apart(file: Path) -> None:
    door = ["--zmq-door", "--zmq-door-group=0", "--runtime-directory=@DIRECTORY@/r"]
    with serving(*door) as server:
        assert REFUSED == ask_door(server, ALICE)
        os.chown(file, ALICE, ALICE)

        assert "registered" == ask_door(server, ALICE)


@pytest.mark.long(
    "system/attacks/test_files_of_others.py::test_a_client_gets_no_file_that_it_could_not_open",
    "supervisor/machine/test_segments.py::test_a_client_gets_what_it_could_open_itself",
)
@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_server_that_is_not_root_lends_its_user_s_files_to_nobody(
    of_another_user: Server, file: Path, kind: str
) -> None:
    server = of_another_user
    os.chown(file, SERVER, SERVER)
    assert REFUSED == ask(server, kind, ALICE)
    assert SECRET == file.read_bytes()
    assert "copied" == ask(server, kind, SERVER)
    os.chown(file, ALICE, ALICE)
    assert REFUSED == ask(server, kind, ALICE)  # as in Triton: the server cannot open it
    file.chmod(0o666)

    assert ("copied", "copied") == (ask(server, kind, ALICE), ask(server, kind, BOB))


def test_a_client_that_has_left_is_not_taken_for_root(server: Server, file: Path) -> None:
    path = "/v2/systemsharedmemory/region/left/register"
    request = raw_request("POST", path, json.dumps({"key": KEY, "byte_size": SIZE}).encode())
    leaving = f"""
import encodings.idna, os, socket  # Python may lie where only root reads
os.setuid({ALICE})
print("there", flush=True)
input()
with socket.create_connection(("127.0.0.1", {server.http_port})) as client:
    client.sendall({request!r})
print("left", flush=True)
"""
    command = [sys.executable, "-c", leaving]
    pids = server.pids()["http"]
    [worker] = [one for one in map(psutil.Process, pids) if one.ppid() in pids]
    warnings = server.log_text().count("refused to register")
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        assert "there\n" == client.stdout.readline()
        # for a moment: one that is stopped for some seconds is replaced
        worker.suspend()
        try:
            client.stdin.write("\n")
            client.stdin.flush()
            assert "left\n" == client.stdout.readline()
        finally:
            worker.resume()

    # the request of one that has left is read all the same
    eventually(lambda: _status(server) is not None, 60)
    for _ in range(5):
        assert [] == _status(server)
    assert SECRET == file.read_bytes()
    assert warnings <= server.log_text().count("refused to register") <= 1


def _status(server: Server) -> list[str]:
    with urllib.request.urlopen(f"{server.url}/v2/systemsharedmemory/status", timeout=30) as answer:
        return list(json.load(answer))
