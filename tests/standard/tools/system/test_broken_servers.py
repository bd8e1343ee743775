"""Servers and machines with one fault each: explain and doctor name it, and their advice helps."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.standard.ctl.system.commands import OPTION, ctl
from tests.standard.ctl.system.commands import place as place_of
from tests.standard.tools.advice.world import BODY, Operator, World, code_of, program
from tests.standard.tools.system import broken_models as broken
from tests.support.certificates import Authority
from tests.support.needs import find_tool, skip_missing
from tests.support.server import Server, free_ports, tensor
from tests.support.small_disk import python_with_disk
from tests.support.waiting import eventually
from zmqtriton import runtime_places
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import ALL_MODELS, Grant

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "standard/tools/system/test_server_trouble.py::"
        "test_a_certificate_that_has_expired_and_directories_that_are_gone_are_told",
        "standard/tools/system/test_doctor.py::test_a_server_that_is_well_and_one_that_is_stopped",
    ),
]

TOKENS = {name: f"zmqt_a-secret-of-{name}-0123456789" for name in ("busy", "quiet")}
ADD_SUB = {"inputs": [tensor(name, "FP32", [1.0] * 16, [1, 16]) for name in ("INPUT0", "INPUT1")]}
#: Hangs, if it is asked for that.
_HANGS = code_of(
    "    def execute(self, requests):\n"
    "        if pb_utils.get_input_tensor_by_name(requests[0], 'IN').as_numpy()[0] > 5:\n"
    "            time.sleep(100000)\n"
    f"        {broken.ANSWER}\n"
)


def write_tokens(file: Path, **limits: Any) -> None:
    scopes = token_file.parse_scopes("infer")
    grants = [
        Grant(name, token_file.Grant.digest_of(token), scopes, ALL_MODELS, None)
        for name, token in TOKENS.items()
    ]
    grants[0] = grants[0]._replace(**limits)
    file.write_text("".join(f"{grant.line()}\n" for grant in grants))
    file.chmod(0o600)


class Place:
    """A server with all that can go wrong, and its files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory / "certificates")
        self.pair, self.good = (self.authority.issue(name, days=90) for name in ("used", "good"))
        for pair in (self.pair, self.good):
            pair.key.chmod(0o600)
        self.tokens, self.config = directory / "tokens", directory / "options.toml"
        self.logs, self.lines, self.state = (directory / n for n in ("logs", "lines", "state"))
        write_tokens(self.tokens)
        self.config.write_text("jobs = true\n")
        for folder in (self.logs, self.lines):
            folder.mkdir()
        options = [
            OPTION.replace("@DIRECTORY@", str(directory)),
            f"--config={self.config}",
            "--grpc-use-ssl=true",
            f"--grpc-server-cert={self.pair.cert}",
            f"--grpc-server-key={self.pair.key}",
            f"--access-log={self.lines / 'access'}",
            f"--log-file={self.logs / 'log'}",
            f"--state-directory={self.state}",
            f"--tokens={self.tokens}",
            "--model-control-mode=explicit",
            "--load-model=*",
        ]
        self.server = Server(directory / "s", options=options)
        self.server.write_model("steady", broken.CONFIG, code_of(broken.WORKS))
        two = "instance_group [{ count: 2 kind: KIND_CPU }]\n"
        self.server.write_model("double", broken.CONFIG + two, _HANGS)
        self.operator = Operator(self.server)

    def ask(self, token: str = "quiet", value: float = 1.0, model: str = "steady") -> int:
        body = json.dumps({"inputs": [tensor("IN", "FP32", [value])]}).encode()
        headers = {"Authorization": f"Bearer {TOKENS[token]}"}
        try:
            return self.server.exchange(f"/v2/models/{model}/infer", body, headers).status
        except OSError:
            return 0

    def await_cause(self, words: str, advice: str, *, by: str = "explain") -> Any:
        """Wait for the finding with these words, and check the beginning of its advice."""

        def find() -> Any:
            done = ctl(self.server, by, "-o", "json")
            self.last = json.loads(done.stdout)
            return next((one for one in self.last if words in one["text"]), None)

        try:
            finding = eventually(find, 60, words)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.last}") from None
        assert finding["advice"].startswith(advice), finding
        return finding

    def is_over(self, words: str, *, by: str = "explain") -> None:
        eventually(lambda: words not in ctl(self.server, by, "-o", "json").stdout, 60, words)

    def type(self, finding: Any) -> list[str]:
        return [self.operator.type(command) for command in finding["commands"]]


@pytest.fixture(scope="module")
def place(session_mark: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("place"))
    with place.server:
        yield place


def _copy(source: Any, target: Any) -> None:
    shutil.copy(source.key, target.key)
    shutil.copy(source.cert, target.cert)


# ------------------------------------------------------------- certificates


@pytest.mark.parametrize(
    ("days", "cause", "advice"),
    [
        (-1, "has expired", "Replace the files; the server reads them again by itself."),
        (3, "expires in", "Replace the files in time; the server reads them again by itself."),
    ],
)
def test_a_certificate_that_ends_is_replaced(
    place: Place, days: int, cause: str, advice: str
) -> None:
    over = place.authority.issue(f"over{days}", days=days)
    over.key.chmod(0o600)
    _copy(over, place.pair)

    finding = place.await_cause(cause, advice)
    [dates] = place.type(finding)
    assert "notAfter" in dates
    _copy(place.good, place.pair)

    place.is_over(cause)


def test_a_key_of_another_certificate_is_told(place: Place) -> None:
    shutil.copy(place.authority.pair.key, place.pair.key)
    place.pair.key.chmod(0o600)

    finding = place.await_cause(
        "cannot be used", "The certificate and its key must belong together"
    )
    place.type(finding)
    _copy(place.good, place.pair)

    place.is_over("cannot be used")


@pytest.mark.parametrize(
    ("name", "cause", "advice"),
    [
        ("key", "every user of this machine can read the key", "Its owner can pretend to be"),
        ("tokens", "the file of --tokens", "Its readers may learn who has access."),
    ],
)
def test_a_secret_that_everybody_reads_is_closed(
    place: Place, name: str, cause: str, advice: str
) -> None:
    (place.pair.key if name == "key" else place.tokens).chmod(0o644)

    place.type(place.await_cause(cause, advice))

    place.is_over(cause)


def test_a_file_of_tokens_that_cannot_be_used_is_corrected(place: Place) -> None:
    place.tokens.write_text("nonsense\n")

    place.type(place.await_cause("--tokens: ", "The server does not start with it."))
    write_tokens(place.tokens)

    place.is_over("--tokens: ")


# -------------------------------------------------------------- directories


def test_a_deleted_log_is_made_again(place: Place) -> None:
    shutil.rmtree(place.logs)

    finding = place.await_cause(
        "the log is lost: ", "At this signal the server makes the directory and"
    )
    place.type(finding)

    place.is_over("the log is lost: ")
    assert 200 <= place.ask(model="no_such_model")
    eventually(lambda: (place.logs / "log").exists(), 60, "the log")


def test_a_deleted_access_log_makes_itself_again(place: Place) -> None:
    shutil.rmtree(place.lines)

    def is_written() -> bool:
        place.ask()
        return bool((place.lines / "access").exists() and (place.lines / "access").stat().st_size)

    eventually(is_written, 60, "lines")


def test_a_deleted_directory_of_jobs_is_made_again(place: Place) -> None:
    shutil.rmtree(place.state / "jobs")
    [before] = place.server.pids()["jobs"]

    finding = place.await_cause(
        "the directory of the jobs is gone", "Jobs and batches that were there are"
    )
    assert [f"kill {before}"] == finding["commands"]
    place.type(finding)

    place.is_over("the directory of the jobs is gone")
    assert (place.state / "jobs" / "jobs.sqlite").exists()


def test_the_runtime_directory_is_made_again(place: Place) -> None:
    shutil.rmtree(place.directory / "run")

    eventually(lambda: ctl(place.server, "explain").exit_code == 0, 60, "an answer")

    assert 200 == place.ask()


# ------------------------------------------------------------------- tokens


@contextmanager
def load(place: Place) -> Iterator[list[int]]:
    """Keep one token busy on kept connections, and another quiet."""
    ends, statuses = threading.Event(), []
    from http.client import HTTPConnection

    body = json.dumps({"inputs": [tensor("IN", "FP32", [1.0])]})

    def run(token: str, pause_s: float) -> None:
        connection = HTTPConnection("127.0.0.1", place.server.http_port, timeout=60)
        headers = {"Authorization": f"Bearer {TOKENS[token]}"}
        while not ends.wait(pause_s):
            connection.request("POST", "/v2/models/steady/infer", body, headers)
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
        connection.close()

    threads = [
        threading.Thread(target=run, args=each) for each in (("busy", 0.002), ("quiet", 0.4))
    ]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        ends.set()
        for thread in threads:
            thread.join()


def test_a_token_that_sends_nearly_all_is_named_and_limited(place: Place) -> None:
    with load(place) as statuses:
        finding = place.await_cause(
            "the token 'busy' sends 9", "If others wait because of it, requests_per"
        )
        [clients] = place.type(finding)
        assert "busy" in clients
        write_tokens(place.tokens, requests_per_second=1.0)

        eventually(lambda: 429 in statuses, 60, "its limit")
        refused = place.await_cause(
            "refused for the limits of their tokens", "The file of the tokens has their limits."
        )
        assert [] == refused["commands"]
    write_tokens(place.tokens)
    eventually(lambda: 200 == place.ask("busy"), 60, "no limit")


# ----------------------------------------------------------------- processes


def test_one_hung_instance_of_two_is_restarted_alone(place: Place) -> None:
    for _ in range(20):  # what is usual
        assert 200 == place.ask(model="double")
    hung = threading.Thread(target=place.ask, args=("quiet", 9.0, "double"))
    hung.start()
    before = place.server.stub_pids("double")

    finding = place.await_cause(
        "instance double_", "This shows the line of code that each thread is at."
    )
    stacks, restart = finding["commands"]
    for _ in range(3):  # to look changes nothing
        ctl(place.server, "explain", "double")
    assert before == place.server.stub_pids("double")
    assert hung.is_alive()
    assert "model.py" in place.operator.type(stacks)
    place.operator.type(restart)

    hung.join(60)
    assert not hung.is_alive()
    eventually(lambda: len(place.server.stub_pids("double")) == 2, 60, "another one")
    assert 1 == len({*before} & {*place.server.stub_pids("double")})
    assert 200 == place.ask(model="double")


def test_a_stopped_process_is_continued(place: Place) -> None:

    def stop() -> Any:
        """Stop a stub; it is replaced after three seconds, so it may go unseen."""
        for pid in place.server.stub_pids("steady")[:1]:
            os.kill(pid, signal.SIGSTOP)
            matches = json.loads(ctl(place.server, "doctor", "-o", "json").stdout)
            return next((one for one in matches if f"(pid {pid}) is stopped" in one["text"]), None)

    finding = eventually(stop, 60, "it is seen")
    assert finding["advice"] == "It does nothing until it is continued."
    subprocess.run(shlex.split(finding["commands"][0]), check=False)  # it may be replaced by now

    place.is_over("is stopped by a signal", by="doctor")
    eventually(lambda: place.ask() == 200, 60, "it answers")


def test_changed_options_are_told(place: Place) -> None:
    place.config.write_text("jobs = true\n# more\n")
    os.utime(place.config, (time.time() + 60, time.time() + 60))

    finding = place.await_cause(
        "has changed since the server started", "The server reads it once", by="doctor"
    )

    assert "jobs" in "".join(place.type(finding))


# ------------------------------------------------- the ten questions at night


def test_each_question_of_the_night_has_its_command(place: Place) -> None:
    """The commands of the table in docs/wrong.md do what it says."""
    page = (Path(__file__).parents[4] / "docs" / "wrong.md").read_text()
    table = page.partition("## Questions at night")[2].partition("\n## ")[0]
    commands = re.findall(r"^\|[^|]*\|[^`|]*`(zmqtriton-ctl [^`]*)`", table, re.MULTILINE)
    assert 7 == len(commands)

    place.server.replace_only("stub", "steady")
    eventually(lambda: place.ask() == 200, 60, "another one")

    said = {}
    drain = "zmqtriton-ctl drain"
    with load(place):
        for command in commands:
            if command == drain:
                continue  # it waits for the load's end
            typed = command.replace("MODEL", "steady").replace("ADDRESS", "203.0.113.9")
            done = ctl(place.server, *shlex.split(typed)[1:])
            said[command] = done.output
            # nobody is there to be thrown out
            assert done.exit_code == ("ADDRESS" in command), (typed, done.output)
            assert done.output.strip() or "logs" in typed, typed
    for command in (drain, "zmqtriton-ctl undrain"):
        place.operator.type(command)

    parts = {"stats": "Spare/s", "clients": "busy", "doctor": "is valid until", "status": "steady"}
    assert [] == [name for name, part in parts.items() if part not in said[f"zmqtriton-ctl {name}"]]
    eventually(lambda: place.ask() == 200, 60, "it serves again")


# ----------------------------------------------- machines, and starts of servers


def doctor(
    *words: str, wrapper: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> list[Any]:
    """Return the findings of doctor about a start with these options."""
    line = [*wrapper, sys.executable, "-m", "zmqtriton.ctl.main", "doctor", "-o", "json", *words]
    done = subprocess.run(
        line,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **(env or {})},
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def advised(findings: list[Any], words: str, advice: str) -> Any:
    """Return the finding with these words, whose advice begins so."""
    finding = next((one for one in findings if words in one["text"]), None)
    assert finding is not None, (words, [one["text"] for one in findings])
    assert finding["advice"].startswith(advice), finding
    return finding


def is_silent(findings: list[Any], words: str) -> bool:
    return not [one for one in findings if words in one["text"]]


def in_namespace(preparation: str) -> tuple[str, ...]:
    """Return a program that runs another with mounts of its own, after a preparation."""
    unshare = [find_tool("unshare"), "-rm", "sh", "-c"]
    if subprocess.run([*unshare, "mount -t tmpfs none /mnt"], capture_output=True).returncode:
        skip_missing("a namespace that may mount")
    return (*unshare, f'{preparation}; exec "$@"', "sh")


def as_nobody(*more: str) -> tuple[str, ...]:
    if os.geteuid():
        skip_missing("root's rights")
    return (find_tool("setpriv"), "--reuid=65534", "--clear-groups", *more)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    number, *others = free_ports(3)
    words = ("--", f"--grpc-port={others[0]}", f"--metrics-port={others[1]}")
    with socket.socket() as holder:
        holder.bind(("0.0.0.0", number))
        holder.listen()
        finding = advised(
            doctor(*words, f"--http-port={number}"),
            f"port {number} is in use by process",
            "End that process, or take another port, as in ",
        )
        [look] = finding["commands"]
        other = finding["advice"].rpartition(" ")[2].rstrip(".")
        assert (
            str(number) in program(["sh", "-c", look.replace("=", "=").replace(" :", " :")]).stdout
        )
        assert is_silent(doctor(*words, other), "is in use")

    assert is_silent(doctor(*words, f"--http-port={number}"), "is in use")


def test_options_that_are_wrong() -> None:
    advised(
        doctor("--", "--http-prot=8000"),
        "a server cannot start with these options",
        "Correct them: on the command line, in the file of --config, in variables",
    )

    assert is_silent(doctor("--", "--http-port=0"), "cannot start with these options")


def test_a_repository_that_is_missing(tmp_path: Path) -> None:
    words = ("--", f"--model-repository={tmp_path}/models")
    finding = advised(
        doctor(*words), "cannot be used", "Name a directory that has a directory for each model"
    )
    assert program(shlex.split(finding["commands"][0])).returncode
    (tmp_path / "models").mkdir()

    assert is_silent(doctor(*words), "the model repository")


@pytest.mark.parametrize(
    ("options", "cause", "advice"),
    [
        (
            "--log-file=@/x/log",
            "the log cannot be written: there is no",
            "Make it, or name another",
        ),
    ],
)
def test_a_directory_that_is_missing(tmp_path: Path, options: str, cause: str, advice: str) -> None:
    words = ("--", options.replace("@", str(tmp_path)))
    finding = advised(doctor(*words), cause, advice)
    for command in finding["commands"]:
        assert 0 == program(shlex.split(command)).returncode

    assert is_silent(doctor(*words), cause)


@pytest.mark.parametrize(
    ("options", "cause", "advice"),
    [
        ("--log-file=@/log", "the log cannot be written: this user", "Correct the rights, or name"),
        (
            "--jobs --state-directory=@",
            "jobs cannot be kept",
            "Correct the rights, or name another",
        ),
        (
            "--environment-directory=@",
            "environments of models cannot be kept in",
            "Name another directory with --environment-directory.",
        ),
        ("--runtime-directory=@", "the runtime directory", "Name another one with --runtime-dir"),
    ],
)
def test_a_directory_of_another_owner(nobodys: Path, options: str, cause: str, advice: str) -> None:
    """As nobody: the directory is root's, then it is nobody's."""
    closed = nobodys / "closed"
    closed.mkdir()
    closed.chmod(0o755)
    words = ("--", *options.replace("@", str(closed)).split())
    finding = advised(doctor(*words, wrapper=as_nobody(), env=_OF_NOBODY), cause, advice)
    for command in finding["commands"]:
        assert 0 == program(shlex.split(command)).returncode
    os.chown(closed, 65534, 65534)
    closed.chmod(0o700)

    assert is_silent(doctor(*words, wrapper=as_nobody(), env=_OF_NOBODY), cause)


_OF_NOBODY = {"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def nobodys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A place that another user reaches, who also reaches this code."""
    import tempfile

    wrapper = as_nobody()
    if subprocess.run([*wrapper, sys.executable, "-c", "import zmqtriton"], check=False).returncode:
        skip_missing("code that nobody may read")
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_a_home_that_is_not_there(tmp_path: Path) -> None:
    words = ("--", "--http-port=0")
    finding = advised(
        doctor(*words, env={"HOME": str(tmp_path / "none")}),
        "the home directory cannot be used",
        "Libraries of models that keep something there fail or complain",
    )
    assert ["export HOME=/tmp"] == finding["commands"]

    assert is_silent(doctor(*words, env={"HOME": "/tmp"}), "the home directory")


def test_a_proxy_in_the_environment() -> None:
    environment = {"http_proxy": "http://proxy.example:3128", "no_proxy": ""}
    finding = advised(
        doctor("--", "--http-port=0", env=environment),
        "sends requests for localhost to a proxy",
        "curl, gRPC and other clients on this machine then do not reach the server.",
    )
    [command] = finding["commands"]
    name, _, value = command.removeprefix("export ").partition("=")

    assert is_silent(doctor("--", "--http-port=0", env={**environment, name: value}), "to a proxy")


@pytest.mark.parametrize(
    ("options", "path", "cause", "advice"),
    [
        (
            "--log-file=/mnt/log",
            "/mnt",
            "the disk of /mnt, for the log, has",
            "Lines are lost when it is full.",
        ),
        (
            "--jobs --state-directory=/mnt",
            "/mnt",
            "for jobs and batches, has",
            "New jobs are refused with 507 when it is full. Free some of it.",
        ),
        (
            "--environment-directory=/mnt",
            "/mnt",
            "an environment of a model takes up to several GiB",
            "Remove those that are no longer used, or free the disk.",
        ),
    ],
)
def test_a_disk_that_is_full(options: str, path: str, cause: str, advice: str) -> None:
    """A small tmpfs; what is freed is a file of it, or a larger one is mounted."""
    words = ("--", *options.split())
    full = f"mount -t tmpfs -o size=2g none {path}; fallocate -l 1900m {path}/full"

    advised(doctor(*words, wrapper=in_namespace(full)), cause, advice)

    assert is_silent(doctor(*words, wrapper=in_namespace(f"{full}; rm {path}/full")), cause)


def test_a_full_directory_for_temporary_files() -> None:
    place = str(runtime_places.preferred())
    full = f"mount -t tmpfs -o size=1m none {place}; dd if=/dev/zero of={place}/full 2>/dev/null"
    cause, words = "for runtime directories, has", ("--", "--http-port=0")

    advised(
        doctor(*words, wrapper=in_namespace(full)),
        cause,
        "A server cannot start when it is full. Free some of it.",
    )

    freed = doctor(
        *words, wrapper=in_namespace(f"{full}; rm {place}/full; mount -o remount,size=9m {place}")
    )
    assert is_silent(freed, cause)


def test_environments_that_may_not_be_executed() -> None:
    words = ("--", "--environment-directory=/mnt")
    cause = "is mounted noexec"
    advised(
        doctor(*words, wrapper=in_namespace("mount -t tmpfs -o noexec none /mnt")),
        "environments of models cannot run from /mnt",
        "Name another directory with --environment-directory.",
    )

    assert is_silent(doctor("--", "--environment-directory=/tmp"), cause)


def test_shared_memory_that_is_full() -> None:
    full = "mount -t tmpfs -o size=10m none /dev/shm; fallocate -l 9900k /dev/shm/full"
    words = ("--", "--allow-client-shm=true")
    cause = "and clients may pass tensors there"

    finding = advised(
        doctor(*words, wrapper=in_namespace(full)), cause, "Remove files that no client uses"
    )

    assert ["ls -lS /dev/shm"] == finding["commands"]
    assert is_silent(doctor(*words, wrapper=in_namespace(f"{full}; rm /dev/shm/full")), cause)


def test_what_a_triton_has_left() -> None:
    left = "mount -t tmpfs none /dev/shm; fallocate -l 9m /dev/shm/triton_shm_x"
    words, cause = ("--", "--http-port=0"), "an NVIDIA Triton has left"

    advised(doctor(*words, wrapper=in_namespace(left)), cause, "Remove them if no tritonserver")

    removed = doctor(*words, wrapper=in_namespace(f"{left}; rm /dev/shm/triton_shm_*"))
    assert is_silent(removed, cause)


_UNIT = "[Service]\nExecStart=%s\nTimeoutStopSec=%s\nLimitNOFILE=%s\nKillMode=%s\n"


def _unit(*values: object) -> tuple[str, ...]:
    text = shlex.quote(_UNIT % values)
    place = "/etc/systemd/system"
    return in_namespace(
        f"mount -t tmpfs none {place}; printf %s {text} > {place}/zmqtriton.service"
    )


@pytest.mark.parametrize(
    ("values", "cause", "advice"),
    [
        (("/no/zmqtriton", 90, 65536, "mixed"), "which does not exist", "Install the server there"),
        (
            ("/bin/sh", 5, 65536, "mixed"),
            "kills the server 5 s after a stop",
            "Set TimeoutStopSec=",
        ),
        (("/bin/sh", 90, 100, "mixed"), "allows 100 file descriptors", "Set LimitNOFILE=65536."),
        (("/bin/sh", 90, 65536, "process"), "has KillMode=process", "Set KillMode=mixed:"),
    ],
)
def test_a_unit_of_systemd(values: tuple[object, ...], cause: str, advice: str) -> None:
    words = ("--", "--http-port=0")

    advised(doctor(*words, wrapper=_unit(*values)), cause, advice)

    assert is_silent(doctor(*words, wrapper=_unit("/bin/sh", 90, 65536, "mixed")), cause)


def test_few_descriptors_and_few_processes(nobodys: Path) -> None:
    words = ("--", "--http-port=0")
    prlimit = find_tool("prlimit")

    few = doctor(*words, wrapper=(prlimit, "--nofile=200:200"))
    advised(few, "a process may have 200 file descriptors", "Each connection, instance and region")
    assert is_silent(doctor(*words), "a process may have 200 file descriptors")

    processes = doctor(*words, wrapper=(*as_nobody(), prlimit, "--nproc=500:500"), env=_OF_NOBODY)
    advised(
        processes,
        "this user may have 500 processes and threads",
        "Each instance is a process, and numeric libraries have a thread for each core.",
    )
    raised = doctor(*words, wrapper=(*as_nobody(), prlimit, "--nproc=16384"), env=_OF_NOBODY)
    assert is_silent(raised, "processes and threads, which is few")


@pytest.mark.parametrize(
    ("options", "cause", "advice"),
    [
        ("", "models get all variables of the environment but", "--model-env restricts them"),
        ("--model-env=*", "the server's own, too", "Credentials of the server may be among them."),
        (
            "--model-env=A",
            "models get only the variables",
            "Name each other one that a model reads",
        ),
    ],
)
def test_the_variables_of_models(options: str, cause: str, advice: str) -> None:
    advised(doctor("--", "--http-port=0", *options.split()), cause, advice)


def test_servers_that_were_killed_and_that_are_stopped(tmp_path: Path) -> None:
    run = tmp_path / "run"
    server = Server(
        tmp_path / "s", ["add_sub"], options=[f"--runtime-directory={run}"], frontends=()
    )
    with server:
        pids = [pid for each in server.pids().values() for pid in each]
        os.kill(server.pid, signal.SIGSTOP)
        try:
            done = program(["zmqtriton-ctl", f"--runtime-directory={run}", "doctor", "-o", "json"])
            finding = advised(
                json.loads(done.stdout), "is alive and does not answer", "Its supervisor is stopped"
            )
            assert str(server.pid) in program(shlex.split(finding["commands"][0])).stdout
        finally:
            os.kill(server.pid, signal.SIGCONT)
        eventually(server.is_ready, 60)
        for pid in pids:  # at once, so that none cleans up
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        server.wait()
        eventually(lambda: not any(map(psutil.pid_exists, pids)), 60, "the end of all")

        done = program(["zmqtriton-ctl", f"--runtime-directory={run}", "doctor", "-o", "json"])
        finding = advised(
            json.loads(done.stdout), "a server that was killed has left", "The next server of this"
        )
        for command in finding["commands"]:
            assert 0 == program(shlex.split(command)).returncode
        done = program(["zmqtriton-ctl", f"--runtime-directory={run}", "doctor", "-o", "json"])
        assert is_silent(json.loads(done.stdout), "was killed has left")


#: Has the process of gRPC start in a Python without that module.
_WITHOUT_SSL = """
import sys
if "zmqtriton_frontends.grpc_api" in sys.orig_argv:
    sys.modules["ssl"] = sys.modules["_ssl"] = None
"""


def test_a_frontend_that_can_never_start(tmp_path: Path) -> None:
    (site := tmp_path / "site").mkdir()
    (site / "sitecustomize.py").write_text(_WITHOUT_SSL)
    server = Server(
        tmp_path / "s",
        ["add_sub"],
        options=[OPTION.replace("@DIRECTORY@", str(tmp_path))],
        environment={"PYTHONPATH": str(site)},
    )
    with server:
        operator = Operator(server)
        cause = "the grpc process dies again and again"
        findings = eventually(
            lambda: [one for one in operator.findings() if cause in one["text"]], 120, cause
        )
        assert findings[0]["advice"].startswith("The other processes serve. The log has the reason")
        logs, status = map(operator.type, findings[0]["commands"])
        assert "ssl" in logs
        assert cause in status
        (site / "sitecustomize.py").unlink()

        eventually(
            lambda: [] == [one for one in operator.findings() if cause in one["text"]],
            120,
            "starts",
        )


#: Has a process wait before it knows who it is, as long as a file is there.
_WAITS = """
import os, sys, time
while {module!r} in sys.orig_argv and os.path.exists({file!r}):
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("role", "module", "cause"),
    [
        # loads are answered when it has heard of them
        ("grpc", "zmqtriton_frontends.grpc_api", "has not answered for"),
        ("metrics", "zmqtriton_standard.metrics", "has not opened after"),
    ],
)
def test_a_process_that_is_silent_at_its_start(
    tmp_path: Path, role: str, module: str, cause: str
) -> None:
    (site := tmp_path / "site").mkdir()
    (held := tmp_path / "held").touch()
    (site / "sitecustomize.py").write_text(_WAITS.format(file=str(held), module=module))
    server = Server(
        tmp_path / "s",
        ["add_sub"],
        options=[OPTION.replace("@DIRECTORY@", str(tmp_path))],
        environment={"PYTHONPATH": str(site)},
    )
    server.launch()
    try:
        operator = Operator(server)
        eventually(lambda: ctl(server, "status").exit_code == 0, 60, "a server")

        def find() -> list[Any]:
            return [one for one in operator.findings() if cause in one["text"]]

        finding = advised(eventually(find, 120, cause), cause, "It waits for something, such as a")
        [pid] = server.pids()[role]
        assert finding["text"].startswith(f"the {role} process {pid} ")
        waited = ctl(server, "wait", "--timeout=0.1")
        assert 1 == waited.exit_code
        assert f"the {role} process {pid} {cause}" in waited.output
        end, status = finding["commands"]
        assert cause in operator.type(status)
        held.unlink()  # it may go on by itself
        subprocess.run(shlex.split(end), check=False)

        assert 0 == ctl(server, "wait", "--timeout=60").exit_code
        eventually(lambda: [] == find(), 60, "another process")
    finally:
        server.stop()


def test_too_few_descriptors_for_instances(tmp_path: Path) -> None:
    server = Server(
        tmp_path / "s",
        options=[
            "--exit-on-error=false",
            "--strict-readiness=false",
            OPTION.replace("@DIRECTORY@", str(tmp_path)),
        ],
        frontends=(),
    )
    many = "instance_group [{ count: 60 kind: KIND_CPU }]\n"
    server.write_model("wide", broken.CONFIG + many, code_of(broken.WORKS))
    server.wrapper = (find_tool("prlimit"), "--nofile=256:256")
    with server:
        operator = Operator(server)
        [finding, *_] = operator.findings("wide")
        assert "too few file descriptors for its instances" in finding["text"], finding
        assert finding["advice"].startswith(
            "Raise `ulimit -n` (LimitNOFILE= of systemd) and restart"
        )
        for command in finding["commands"]:
            operator.type(command)
        server.edit_config("wide", "count: 60", "count: 2")
        operator.type("zmqtriton-ctl restart wide")
        assert 200 == server.request_json("/v2/models/wide/infer", BODY)[0]


def test_requests_beyond_the_limit_of_the_server(tmp_path: Path) -> None:
    cause = "refused because too many were unanswered in the whole server"
    for name, limit in (("a", "--max-requests=3"), ("b", "--max-requests=100")):
        options = [OPTION.replace("@DIRECTORY@", str(tmp_path / name)), limit]
        server = Server(tmp_path / name / "s", options=options, frontends=())
        server.write_model("slow", broken.CONFIG, code_of(broken.executing("time.sleep(0.2)")))
        with server:
            world = World(server, "slow")
            statuses = world.answered_in(3.0, clients=6)
            if name == "b":  # the other limit, as advised
                assert 503 not in statuses
                continue
            finding = advised(
                world.await_cause(cause),
                cause,
                "More instances make the queue shorter; --max-requests",
            )
            for command in finding["commands"]:
                world.type(command)
            assert statuses.count(200) * 1.3 < world.answered_in(3.0, clients=6).count(200)


def test_models_on_demand(tmp_path: Path) -> None:
    server = Server(
        tmp_path / "s",
        options=[
            OPTION.replace("@DIRECTORY@", str(tmp_path)),
            "--model-control-mode=explicit",
            "--load-on-demand",
            "--unload-idle-after=1",
        ],
        frontends=(),
    )
    server.write_model("asleep", broken.CONFIG, code_of(broken.WORKS))
    with server:
        world = World(server, "asleep")
        cause = "it sleeps: it is loaded on demand, by its first request"
        finding = advised(
            world.await_cause(cause), cause, "Nothing is wrong. Ask it, or load it if it should"
        )
        ask, load = finding["commands"]
        world.type(ask)

        cause = "it sleeps: it was unloaded after 1 s without requests"
        finding = advised(
            world.await_cause(cause), cause, "Nothing is wrong. The next request loads it; --unl"
        )
        for command in (*finding["commands"], load):
            world.type(command)
        assert 200 == world.ask()


def test_models_that_need_more_memory_than_their_budget(tmp_path: Path) -> None:
    cause = "it was evicted: memory was needed"
    code = code_of(broken.initializing("self.weights = np.ones(60 << 20, np.uint8)"))
    for name, budget in (("small", "110M"), ("large", "8G")):
        options = [
            OPTION.replace("@DIRECTORY@", str(tmp_path / name)),
            "--model-control-mode=explicit",
            "--load-on-demand",
            f"--model-memory-budget={budget}",
        ]
        server = Server(tmp_path / name / "s", options=options)
        for model in ("first", "second"):
            server.write_model(model, broken.CONFIG, code)
        with server:
            first, second = (World(server, each) for each in ("first", "second"))
            first.serves()
            second.serves()
            if name == "large":  # as advised
                assert first.state() == second.state() == "READY"
                continue
            finding = advised(
                first.await_cause(cause),
                cause,
                "The next request loads it again. Raise --model-memory-budget if that happens",
            )
            for command in finding["commands"]:
                first.type(command)
            first.serves()


def test_a_model_that_waits_for_its_turn(tmp_path: Path) -> None:
    cause = "it is being loaded: it waits until others are loaded"
    for count in (1, 2):
        place = tmp_path / str(count)
        options = [
            OPTION.replace("@DIRECTORY@", str(place)),
            "--model-control-mode=explicit",
            f"--model-load-thread-count={count}",
        ]
        server = Server(place / "s", options=options, frontends=())
        for model in ("long", "short"):
            server.write_model(model, broken.CONFIG, code_of(broken.WORKS))
        held = server.block_imports("long")
        held.touch()
        with server:
            long, short = (World(server, each) for each in ("long", "short"))
            long.load_behind()
            long.await_cause("it is still loading")
            short.load_behind()
            if count > 1:  # as advised
                short.serves()
                long.await_cause("it is still loading")
            else:
                advice = "--model-load-thread-count says how many are loaded at a time."
                finding = advised(short.await_cause(cause), cause, advice)
                for command in finding["commands"]:
                    short.type(command)
            held.unlink()
            long.serves()
            short.serves()


_BINDER = """
import sys, numpy, zmqtriton
from zmqtriton_stub.api.inference import InferenceResponse
from zmqtriton_stub.api.tensor import Tensor

class Bound:
    def execute(self, requests):
        return [InferenceResponse([Tensor("OUT", numpy.zeros(1, "f4"))]) for _ in requests]

connection = zmqtriton.connect(sys.argv[1])
row = {"data_type": "TYPE_FP32", "dims": [1]}
config = {"input": [{"name": "IN", **row}], "output": [{"name": "OUT", **row}]}
connection.bind("bound", Bound, config=config)
print("bound", flush=True)
sys.stdin.read()
"""


def test_a_program_that_has_bound_a_model_and_ended(tmp_path: Path) -> None:
    options = [OPTION.replace("@DIRECTORY@", str(tmp_path))]
    with Server(tmp_path / "s", ["add_sub"], options=options, frontends=()) as server:
        world = World(server, "bound")

        @contextmanager
        def binder() -> Iterator[subprocess.Popen[bytes]]:
            words = [sys.executable, "-c", _BINDER, str(server.pids()["supervisor"][0])]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            with subprocess.Popen(words, **pipes) as process:  # type: ignore[call-overload]
                assert process.stdout.readline() == b"bound\n"
                yield process
                process.kill()

        with binder():
            world.serves()
        cause = "the program that has bound it has ended"
        finding = advised(
            world.await_cause(cause), cause, "Start that program again; it binds the model."
        )
        for command in finding["commands"]:
            world.type(command)
        with binder():
            world.serves()


def test_a_python_that_the_models_user_may_not_enter(nobodys: Path) -> None:
    (closed := nobodys / "closed").mkdir()
    python = closed / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    closed.chmod(0o700)
    options = [
        OPTION.replace("@DIRECTORY@", str(nobodys)),
        "--model-control-mode=explicit",
    ]
    server = Server(nobodys / "s", options=options, frontends=(), stub_user="nobody")
    config = broken.CONFIG + broken.parameter("PYTHON_EXECUTABLE", str(python))
    server.write_model("closed", config, code_of(broken.WORKS))
    with server:
        world = World(server, "closed")
        world.load()
        cause = "its Python"
        advice = "That user must be allowed to read it and to enter each directory on the way"
        finding = advised(world.await_cause("Permission denied"), cause, advice)
        look = re.search(r"`(.*?)`", finding["advice"])
        assert look
        assert "drwx------" in world.type(look[1])
        closed.chmod(0o755)
        for command in finding["commands"]:
            world.type(command)
        world.serves()


def test_a_model_whose_directory_is_gone_when_it_is_loaded_again(tmp_path: Path) -> None:
    options = [OPTION.replace("@DIRECTORY@", str(tmp_path)), "--model-control-mode=explicit"]
    server = Server(tmp_path / "s", options=options, frontends=())
    server.write_model("moved", broken.CONFIG, code_of(broken.WORKS))
    with server:
        world = World(server, "moved")
        assert "" == world.load()
        away = world.path.rename(tmp_path / "away")
        world.load()
        cause = "no repository has a model 'moved'"
        finding = advised(
            world.await_cause(cause), cause, "Add its directory to a repository, or correct the"
        )
        for command in finding["commands"]:
            world.type(command)
        away.rename(world.path)
        assert "" == world.load()
        assert cause not in world.texts()
        world.serves()


def test_a_process_with_nearly_all_its_descriptors(tmp_path: Path) -> None:
    cause = "uses "
    for name, limit in (("few", 400), ("many", 8192)):
        options = [OPTION.replace("@DIRECTORY@", str(tmp_path / name))]
        server = Server(tmp_path / name / "s", ["add_sub"], options=options, frontends=())
        server.wrapper = (find_tool("prlimit"), f"--nofile={limit}:{limit}")
        with server, ExitStack() as held:
            for _ in range(330):
                held.enter_context(socket.create_connection(("127.0.0.1", server.http_port)))

            def judge(server: Server = server) -> list[Any]:
                matches = json.loads(ctl(server, "doctor", "-o", "json").stdout)
                return [one for one in matches if "file descriptors" in one["text"]]

            if name == "many":  # as advised
                assert [] == judge()
                continue
            finding = advised(
                eventually(lambda: [o for o in judge() if cause in o["text"]], 60, cause),
                cause,
                "Beyond the limit it refuses connections and loads. Raise LimitNOFILE=",
            )
            assert "socket" in Operator(server).type(finding["commands"][0])


def test_names_and_versions_that_are_wrong(tmp_path: Path) -> None:
    options = [OPTION.replace("@DIRECTORY@", str(tmp_path)), "--model-control-mode=poll"]
    options += ["--repository-poll-secs=1", "--strict-readiness=false"]
    with Server(tmp_path / "s", options=options, frontends=()) as server:
        operator = Operator(server)
        [empty] = [one for one in operator.findings() if "it has no models" in one["text"]]
        assert empty["advice"].startswith("It looks in ")
        make, reload = empty["commands"]
        made = program(shlex.split(make.replace("NAME", "prices")), server.directory)
        assert 0 == made.returncode, made.stderr
        operator.type(reload)
        eventually(lambda: server.status("/v2/models/prices/ready") == 200, 60, "the new model")

        wrong = ctl(server, "explain", "prises")
        assert "did you mean 'prices'?" in wrong.output
        assert "The server looks in " in wrong.output
        hint = re.search(r"next: `(.*?)`", wrong.output)
        assert hint
        operator.type(hint[1])
        missing = ctl(server, "explain", "prices", "7")
        assert "there is no version 7; known: 1" in missing.output
        assert (
            "Add its directory, and look at version_policy: by default the highest"
            in missing.output
        )


def test_a_certificate_that_newer_clients_refuse(tmp_path: Path) -> None:
    lax, strict = (Authority(tmp_path / str(each), is_lax=each) for each in (True, False))
    words = ["--", "--grpc-use-ssl=true"]

    def judge(authority: Authority) -> list[Any]:
        pair = authority.issue("server", days=90)
        pair.key.chmod(0o600)
        options = [f"--grpc-server-cert={pair.cert}", f"--grpc-server-key={pair.key}"]
        return doctor(*words, *options, f"--grpc-root-cert={authority.cert}")

    cause = "clients of Python 3.13 and newer refuse the certificate"
    finding = advised(judge(lax), cause, "Add that extension to the certificate, or to that of its")
    assert 0 == program(shlex.split(finding["commands"][0])).returncode
    matches = judge(strict)
    assert is_silent(matches, cause)
    advised(matches, "is valid until", "The server reads new files by itself.")


def test_models_that_cannot_be_read_or_have_no_python(tmp_path: Path) -> None:
    models = tmp_path / "models"
    for name, more in (
        ("wrong", "max_batchsize: 3\n"),
        ("pythonless", broken.parameter("PYTHON_EXECUTABLE", "/no/python")),
    ):
        (models / name / "1").mkdir(parents=True)
        (models / name / "config.pbtxt").write_text(broken.CONFIG + more)
        (models / name / "1" / "model.py").write_text(code_of(broken.WORKS))
    words = ("--", f"--model-repository={models}")

    matches = doctor(*words)
    unreadable = advised(
        matches, "model wrong cannot be loaded", "This shows all that is wrong with it."
    )
    assert "max_batchsize" in program(shlex.split(unreadable["commands"][0])).stdout
    advised(matches, "model pythonless has no usable Python", "Correct the model's parameters, or")
    for name in ("wrong", "pythonless"):
        (models / name / "config.pbtxt").write_text(broken.CONFIG)

    matches = doctor(*words)
    assert is_silent(matches, "model wrong")
    assert is_silent(matches, "model pythonless")


def test_another_installation_comes_first_on_the_path(tmp_path: Path) -> None:
    other = tmp_path / "zmqtriton"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    own = str(Path(sys.executable).parent)
    words, cause = ("--", "--http-port=0"), "PATH has another installation"

    def judge(*folders: str) -> list[Any]:
        return doctor(*words, env={"PATH": os.pathsep.join([*folders, os.environ["PATH"]])})

    advised(judge(str(tmp_path), own), cause, "`zmqtriton` may start that one. Name the program")

    assert is_silent(judge(own, str(tmp_path)), cause)


def test_a_proxy_on_this_machine(tmp_path: Path) -> None:
    proxy = tmp_path / "nginx"
    shutil.copy("/bin/sleep", proxy)
    words = ("--", "--http-address=127.0.0.1")
    cause = "nginx runs here, and a server on loopback answers 421"
    with subprocess.Popen([str(proxy), "600"]) as running:
        try:
            finding = advised(
                doctor(*words), cause, "If it passes on the Host of its clients, name"
            )
            option = finding["commands"][0].split()[1].replace("NAME", "example.org")
            assert is_silent(doctor(*words, option), cause)
        finally:
            running.kill()


def test_what_another_user_may_not(nobodys: Path) -> None:
    """As nobody: a port below 1024, a place for runtime directories, another user's server."""
    low = doctor("--", "--http-port=81", wrapper=as_nobody(), env=_OF_NOBODY)
    if not is_silent(low, "only root may open ports"):  # the kernel may let everybody
        finding = advised(
            low, "only root may open ports below 1024", "Take a higher port, as in --"
        )
        option = finding["advice"].partition(" as in ")[2].partition(",")[0]
        higher = doctor("--", option, wrapper=as_nobody(), env=_OF_NOBODY)
        assert is_silent(higher, "only root may open ports")


def test_models_that_their_user_may_not_read(nobodys: Path) -> None:
    closed = nobodys / "closed"
    (closed / "m" / "1").mkdir(parents=True)
    (closed / "m" / "1" / "model.py").write_text(code_of(broken.WORKS))
    (closed / "m" / "config.pbtxt").write_text(broken.CONFIG)
    closed.chmod(0o700)
    words = ("--", "--stub-user=nobody", f"--model-repository={closed}")

    finding = advised(
        doctor(*words), "models cannot run as nobody", "Give the user the right to read that and to"
    )
    assert str(closed) in program(shlex.split(finding["commands"][0])).stdout
    closed.chmod(0o755)

    assert is_silent(doctor(*words), "models cannot run as nobody")


def test_models_in_trouble_and_many_instances(tmp_path: Path) -> None:
    server = Server(
        tmp_path / "s",
        options=[
            OPTION.replace("@DIRECTORY@", str(tmp_path)),
            "--exit-on-error=false",
            "--strict-readiness=false",
        ],
        frontends=(),
    )
    server.wrapper = (find_tool("taskset"), "-c", "0")
    many = "instance_group [{ count: 5 kind: KIND_CPU }]\n"
    server.write_model("many", broken.CONFIG + many, code_of(broken.WORKS))
    server.write_model("raises", broken.CONFIG, code_of(broken.initializing("raise OSError('x')")))
    with server:
        operator = Operator(server)

        def judge() -> list[Any]:
            return json.loads(ctl(server, "doctor", "-o", "json").stdout)

        trouble = advised(judge(), "raises: not ready", "This says what to do:")
        operator.type(trouble["commands"][0])
        cause = "instances share 1 cores"
        advised(
            judge(), cause, "More instances than cores help only where models wait for something"
        )
        operator.type("zmqtriton-ctl scale many 2")
        eventually(lambda: is_silent(judge(), cause), 60, "fewer")


def test_a_log_on_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    python = python_with_disk(disk, 1 << 16)
    server = Server(
        tmp_path / "s",
        ["add_sub"],
        python=python,
        options=[
            f"--log-file={disk / 'log'}",
            "--log-verbose=1",
            OPTION.replace("@DIRECTORY@", str(tmp_path)),
        ],
        frontends=(),
    )
    with server:
        operator = Operator(server)

        def is_told() -> Any:
            for _ in range(200):
                server.request_json("/v2/models/add_sub/infer", {"inputs": []})
            matches = [
                one for one in operator.findings() if "lines of the log are lost" in one["text"]
            ]
            return matches and matches[0]

        finding = eventually(is_told, 120, "lost lines")

        assert finding["advice"].startswith("The reader of the server's stderr, such as a shipper")
        assert 200 == server.request_json("/v2/models/add_sub/infer", ADD_SUB)[0]


@pytest.mark.extra("jobs")
def test_disks_that_become_full_while_a_server_runs(tmp_path: Path) -> None:
    """The disk is the server's alone, whose operator asks where it runs, as in a container."""
    disk = tmp_path / "disk"
    disk.mkdir()
    server = Server(
        tmp_path / "s",
        ["add_sub"],
        python=python_with_disk(disk, 220 << 20),
        options=[
            f"--access-log={disk / 'access'}",
            "--jobs",
            f"--state-directory={disk}",
            OPTION.replace("@DIRECTORY@", str(tmp_path)),
        ],
        frontends=("metrics",),
    )
    with server:
        [elsewhere] = [one for one in Operator(server).findings() if one["model"] == "the server"]
        assert "lead elsewhere from here" in elsewhere["text"]
        assert elsewhere["advice"].startswith("Its disks, certificates and directories cannot be")
        enter, command = elsewhere["commands"][0].split("zmqtriton-ctl ")
        program_there = [*enter.split(), "zmqtriton-ctl", place_of(server)]

        def there(*words: str) -> list[Any]:
            done = program([*program_there, *words, "-o", "json"])
            assert 0 == done.returncode, done.stderr
            return json.loads(done.stdout)

        def figure(name: str) -> float:
            return next(
                float(line.split()[-1])
                for line in server.metrics_text().splitlines()
                if line.startswith(name)
            )

        def submit() -> int:
            headers = {"Prefer": "respond-async"}
            body = json.dumps(ADD_SUB).encode()
            return server.exchange("/v2/models/add_sub/infer", body, headers).status

        assert [] == there(command)
        assert 202 == submit()
        filler = Path(f"/proc/{server.pids()['supervisor'][0]}/root{disk}/filler")
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            file.writelines(itertools.repeat(bytes(1 << 20)))

        def is_lost() -> bool:
            server.request_json("/v2/models/add_sub/infer", ADD_SUB)
            return figure("zmqtriton_access_log_lines_dropped_total") > 0

        eventually(is_lost, 60, "lost lines")
        assert 507 == submit()
        eventually(lambda: figure("zmqtriton_jobs_writable") == 0, 60, "no room for jobs")
        full = there(command)
        for cause, advice in (
            ("for the access log, has 0 MiB left", "Lines are lost when it is full. Free some"),
            ("for jobs and batches, has 0 MiB left", "New jobs are refused with 507 when it"),
        ):
            [look] = advised(full, cause, advice)["commands"]
            assert "100%" in program([*enter.split(), *shlex.split(look)]).stdout

        filler.unlink()

        eventually(lambda: figure("zmqtriton_jobs_writable") == 1, 60, "room for jobs")
        assert 202 == submit()
        assert [] == there(command)
        lost = figure("zmqtriton_access_log_lines_dropped_total")
        access = filler.with_name("access")
        size = access.stat().st_size
        assert 200 == server.request_json("/v2/models/add_sub/infer", ADD_SUB)[0]
        eventually(lambda: access.stat().st_size > size, 60, "lines")
        assert lost == figure("zmqtriton_access_log_lines_dropped_total")


def test_a_model_that_sleeps(tmp_path: Path) -> None:
    options = [OPTION.replace("@DIRECTORY@", str(tmp_path))]
    server = Server(tmp_path / "s", options=options, frontends=())
    sleeps = "    def sleep(self):\n        pass\n\n    def wake_up(self):\n        pass\n\n"
    server.write_model("steady", broken.CONFIG, code_of(sleeps + broken.WORKS))
    with server:
        operator = Operator(server)
        cause = "it has slept for"
        assert is_silent(operator.findings("steady"), cause)
        operator.type("zmqtriton-ctl sleep steady")

        finding = advised(operator.findings("steady"), cause, "Its next request wakes it up.")
        operator.type(finding["commands"][0])

        assert is_silent(operator.findings("steady"), cause)
