"""A real server for a test: started as users start it, on loopback, over models of tests/models.

    with Server(tmp_path, models=["add_sub"]) as server:
        httpx.get(f"{server.url}/v2/health/ready")

Knows nothing of the server's inside but what its processes are called.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.message import Message
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import psutil

from tests.support import poison, stub_user
from tests.support.loops.long_turns import long_turns
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
MODELS_DIRECTORY = ROOT / "tests" / "models"
#: The models of `zmqtriton demo`.
DEMO_MODELS = ROOT / "extras/zmqtriton_extras/authoring/demo/models"

#: How a process of each role shows itself on its command line; the first that fits counts.
_ROLE_PATTERNS = (
    ("fork-server", re.compile(r"zmqtriton_stub.* --fork-server")),
    ("spare", re.compile(r"zmqtriton_stub.* --spare")),
    ("template", re.compile(r"zmqtriton_stub.* --template")),
    ("stub", re.compile(r"zmqtriton_stub")),
    ("reader", re.compile(r"zmqtriton-reader")),
    ("broker", re.compile(r"zmqtriton[./]broker")),
    ("tracer", re.compile(r"zmqtriton_standard[./]tracing")),
    ("announcer", re.compile(r"zmqtriton_extras.*[./]announcing")),
    ("metrics", re.compile(r"zmqtriton_standard[./]metrics")),
    ("door", re.compile(r"zmqtriton_extras[./]door")),
    ("routes", re.compile(r"zmqtriton_extras[./]routes")),
    ("jobs", re.compile(r"zmqtriton_extras[./]jobs")),
    ("access_log", re.compile(r"zmqtriton_standard[./]access_log")),
    ("capture", re.compile(r"zmqtriton_extras[./]capture")),
    ("token_metrics", re.compile(r"zmqtriton_extras[./]openai[./]token_metrics")),
    ("otlp_logs", re.compile(r"zmqtriton_extras[./]otlp_logs")),
    ("otlp_metrics", re.compile(r"zmqtriton_extras[./]otlp_metrics")),
    ("grpc", re.compile(r"zmqtriton_frontends[./]grpc|grpc_api")),
    ("http", re.compile(r"zmqtriton_frontends[./]http|http_api|gunicorn")),
)


#: Processes that test at once, of any sessions.
_PROCESSES = 32
#: Its name says which of them this one is, as long as it lives.
_PLACE = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def own_ports(place: socket.socket) -> Iterator[int]:
    """Iterate over the ports of this process in random order, each once before any repeats.

    Processes that test at once have ports of their own, since none of them sees what the others
    have chosen and not yet bound.
    """
    for number in range(_PROCESSES):
        with suppress(OSError):
            place.bind(f"\0zmqtriton-tests-{number}")
            break
    # Outside the range that the kernel takes for outgoing connections (ip_local_port_range).
    ports = list(range(15000 + number, 32000, _PROCESSES))
    random.shuffle(ports)
    return itertools.cycle(ports)


_PORTS = own_ports(_PLACE)
_Own = TypeVar("_Own", bound="Server")


def status_of(request: str | urllib.request.Request, within_s: float = 30.0) -> int:
    """The HTTP status of a request, a GET if it is an URL; 0 if nobody answers."""
    try:
        with urllib.request.urlopen(request, timeout=within_s) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


class Answer(NamedTuple):
    """A response of HTTP."""

    status: int
    headers: Message
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body) if self.body else None


def exchange(request: str | urllib.request.Request, within_s: float = 60.0) -> Answer:
    """The answer to a request, whatever its status; a GET if it is an URL."""
    try:
        with urllib.request.urlopen(request, timeout=within_s) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())


class Copy(NamedTuple):
    """A model of tests/models under another name, with more or other text in its configuration."""

    source: str
    name: str = ""
    config: str = ""
    #: A part of the configuration, and what stands in its place.
    edit: tuple[str, str] = ("", "")
    #: In place of its code.
    code: str = ""


class Written(NamedTuple):
    """A model that a test writes."""

    name: str
    config: str
    code: str = ""


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def tensor(
    name: str, datatype: str, data: Sequence[Any], shape: Sequence[int] | None = None
) -> dict[str, Any]:
    """An input in JSON, of one dimension unless it has a shape."""
    shape = [len(data)] if shape is None else shape
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def free_ports(number: int) -> list[int]:
    """Ports on which nobody listens now."""
    ports: list[int] = []
    while len(ports) < number:
        port = next(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
    return ports


class Server:
    """`zmqtriton` over a repository of its own; running between `start` and `stop`."""

    def __init__(
        self,
        directory: Path,
        models: Sequence[str | Path | Copy | Written] = (),
        *,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        python: str | Path = sys.executable,
        ready_within_s: float = 120.0,
        stub_user: str = stub_user.EVERYWHERE,
        frontends: Collection[str] = ("grpc", "metrics"),
    ) -> None:
        """models are names in tests/models or directories; options win over the usual ones.

        stub_user is whom models run as, if not as the server's own user.

        frontends are those beside HTTP; () saves two processes where a test asks neither.
        """
        self.directory = directory
        self.repository = directory / "models"
        #: Where models may write; not in the repository, which would look like a change of it.
        self.scratch = directory / "scratch"
        self.log = directory / "server.log"
        self.http_port, grpc_port, metrics_port = free_ports(3)
        self.url = f"http://127.0.0.1:{self.http_port}"
        self.frontends = frozenset(frontends)
        assert self.frontends <= {"grpc", "metrics"}, frontends
        # A test that has not asked for a frontend does not find its address.
        if "grpc" in self.frontends:
            self.grpc_port = grpc_port
            self.grpc_address = f"127.0.0.1:{grpc_port}"
        if "metrics" in self.frontends:
            self.metrics_port = metrics_port
            self.metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"
        #: The descriptor that the server prints to, in place of the log.
        self.output: int | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._options = options
        self._environment = environment or {}
        self._python = python
        self._ready_within_s = ready_within_s
        self._stub_user = stub_user
        #: A program and its arguments that starts the server.
        self.wrapper: Sequence[str] = ()
        self.repository.mkdir(parents=True)
        self.scratch.mkdir()
        self.add_models(models)

    def add_models(self, models: Iterable[str | Path | Copy | Written]) -> None:
        """Put models into the repository."""
        for model in models:
            if isinstance(model, Written):
                self.write_model(*model)
            elif isinstance(model, Copy):
                path = self.add_model(model.source, model.name) / "config.pbtxt"
                text = path.read_text("utf-8")
                assert model.edit[0] in text
                path.write_text(text.replace(*model.edit) + model.config, "utf-8")
                if model.code:
                    (path.parent / "1" / "model.py").write_text(model.code, "utf-8")
            else:
                self.add_model(model)

    def add_model(self, model: str | Path, name: str = "") -> Path:
        """Copies a model into the repository, as `name` if given; returns its directory."""
        source = MODELS_DIRECTORY / model
        target = self.repository / (name or source.name)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        for config in target.rglob("*.pbtxt"):
            text = config.read_text("utf-8")
            config.write_text(text.replace("@SCRATCH@", str(self.scratch)), "utf-8")
        choose_instances(target)
        return target

    def write_model(self, name: str, config: str, code: str = "") -> Path:
        """Writes a model, without code if it needs none, and returns its directory."""
        directory = self.repository / name
        (directory / "1").mkdir(parents=True)
        (directory / "config.pbtxt").write_text(config)
        if code:
            (directory / "1" / "model.py").write_text(code)
        return directory

    def edit_config(self, model: str, old: str, new: str) -> None:
        """Replaces a part of a model's configuration."""
        path = self.repository / model / "config.pbtxt"
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new), "utf-8")

    def block_imports(self, model: str) -> Path:
        """Block the import of this model until the returned file is removed.

        To be called before the start.
        """
        path = self.scratch / f"{model}.holds"
        code = self.repository / model / "1" / "model.py"
        wait = f"import os, time\nwhile os.path.exists({str(path)!r}): time.sleep(0.005)\n"
        code.write_text(wait + code.read_text())
        return path

    @property
    def journal(self) -> Path:
        """Return what the model `journal` writes."""
        return self.scratch / "journal"

    @property
    def command(self) -> list[str]:
        command = [
            *self.wrapper,
            str(self._python),
            "-m",
            "zmqtriton",
            f"--model-repository={self.repository}",
            "--http-address=127.0.0.1",
            f"--http-port={self.http_port}",
            *self._frontend_options(),
            # One of each is enough to test with, and quick to start.
            "--http-workers=1",
            *self._options,
        ]
        if not self._stub_user:
            return command
        return stub_user.within_reach([*command, f"--stub-user={self._stub_user}"])

    def _frontend_options(self) -> Iterator[str]:
        if "grpc" in self.frontends:
            yield "--grpc-address=127.0.0.1"
            yield f"--grpc-port={self.grpc_port}"
            yield "--grpc-processes=1"
        else:
            yield "--allow-grpc=false"
        if "metrics" in self.frontends:
            yield f"--metrics-port={self.metrics_port}"
        else:
            yield "--allow-metrics=false"

    def launch(self) -> None:
        """Starts the server and does not wait."""
        assert self.process is None, "already started"
        if self._stub_user:
            stub_user.open_up(self.directory)
            shutil.chown(self.scratch, self._stub_user)
        state = {"XDG_STATE_HOME": str(self.directory / "state")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log if self.output is None else self.output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env=_environment(state | dict(self._environment)),
            )

    def start(self: _Own) -> _Own:
        """Starts the server and waits until it is ready; stops it again if it never is."""
        self.launch()
        try:
            eventually(
                self._is_ready_or_dead, self._ready_within_s, f"server ready\n{self.log_text()}"
            )
            if self.returncode is not None:
                raise AssertionError(f"server ended with {self.returncode}\n{self.log_text()}")
        except BaseException:
            self.kill()
            raise
        return self

    def _is_ready_or_dead(self) -> bool:
        return self.returncode is not None or self.is_ready()

    def is_ready(self) -> bool:
        return self.status("/v2/health/ready") == 200

    def status(self, path: str) -> int:
        """The HTTP status of a GET; 0 if nobody answers."""
        return status_of(f"{self.url}{path}")

    def exchange(
        self,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Answer:
        """The answer to a GET, or to a POST with this body."""
        return exchange(urllib.request.Request(f"{self.url}{path}", body, dict(headers)))

    def request_json(
        self, path: str, document: Any = None, *, within_s: float = 60.0
    ) -> tuple[int, Any]:
        """Status and document of a GET, or of a POST with this document."""
        body = None if document is None else json.dumps(document).encode()
        answer = exchange(urllib.request.Request(f"{self.url}{path}", body), within_s)
        return answer.status, answer.document

    def infer_json(
        self, model: str, *inputs: dict[str, Any], within_s: float = 60.0, **more: Any
    ) -> tuple[int, Any]:
        """Status and document of an inference, with more in its own document."""
        document = {"inputs": inputs, **more}
        return self.request_json(f"/v2/models/{model}/infer", document, within_s=within_s)

    def statistics(self, model: str, version: str = "") -> dict[str, Any]:
        """The statistics of a version, or of the only one."""
        path = f"/v2/models/{model}/versions/{version}" if version else f"/v2/models/{model}"
        status, answer = self.request_json(f"{path}/stats")
        assert status == 200, answer
        [entry] = answer["model_stats"]
        return entry

    def metrics_page(self, **headers: str) -> Answer:
        # models may be ready before it listens
        eventually(lambda: is_open(self.metrics_port), 30, "a page of metrics")
        return exchange(urllib.request.Request(self.metrics_url, headers=headers))

    def metrics_text(self) -> str:
        page = self.metrics_page()
        assert page.status == 200, page.body
        return page.body.decode()

    def control_model(self, verb: str, model: str) -> str:
        """The error of a load or an unload, or ""."""
        status, answer = self.request_json(f"/v2/repository/models/{model}/{verb}", {})
        return "" if status == 200 else str(answer["error"])

    @property
    def pid(self) -> int:
        """The supervisor, which runs or has ended."""
        assert self.process is not None, "not started"
        return self.process.pid

    def wait(self, within_s: float = 60.0) -> int:
        """Return the status with which the server ends by itself."""
        assert self.process is not None
        return self.process.wait(within_s)

    @property
    def returncode(self) -> int | None:
        """None while the server runs."""
        return self.process.poll() if self.process else None

    def log_text(self) -> str:
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def pids(self) -> dict[str, list[int]]:
        """Living ones by role: supervisor, fork-server, broker, http, metrics, template, stub, ….

        Not readers, which come and go with their work.
        """
        return {role: pids for role, pids in self._pids().items() if role != "reader"}

    def reader_pids(self) -> list[int]:
        """Processes that read repositories for the supervisor just now."""
        return self._pids().get("reader", [])

    def _pids(self) -> dict[str, list[int]]:
        pids: dict[str, list[int]] = {"supervisor": [self.pid]}
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    # none is left of one that is just ending
                    if (line := child.cmdline()) and child.status() != psutil.STATUS_ZOMBIE:
                        pids.setdefault(role_of(line), []).append(child.pid)
        return pids

    def stub_pids(self, model: str) -> list[int]:
        """The processes of a model's instances."""
        return list(self._instances(model))

    def instance_names(self, model: str) -> list[str]:
        """The names of a model's instances; two may have the same while one follows the other."""
        return list(self._instances(model).values())

    def _instances(self, model: str) -> dict[int, str]:
        instance = re.compile(rf"{re.escape(model)}_\d+(_\d+)?")
        return {
            pid: word
            for pid in self.pids().get("stub", [])
            for words in [[*_command_words(pid)]]
            for word in words
            # a process whose threads are instances has the name of the model alone
            if instance.fullmatch(word) or ("--threads" in words and word == model)
        }

    def stop(self, within_s: float = 60.0) -> int:
        """Asks the server to end, and returns its exit code; kills it if it does not."""
        assert self.process is not None, "not started"
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still there after {within_s} s\n{self.log_text()}") from None

    def kill_only(self, role: str, model: str = "") -> int:
        """Kills the only process of a role, or the only stub of a model, and returns its number."""
        [pid] = self.stub_pids(model) if model else self.pids()[role]
        os.kill(pid, signal.SIGKILL)
        return pid

    def replace_only(self, role: str, model: str = "") -> int:
        """The same, and waits until another one has come in its place."""
        pid = self.kill_only(role, model)

        def is_replaced() -> bool:
            return (self.stub_pids(model) if model else self.pids().get(role, [])) not in (
                [],
                [pid],
            )

        eventually(is_replaced, 60, f"another {model or role}")
        return pid

    def kill(self) -> None:
        """Kills the server alone: what it started must end by itself."""
        if self.process is not None and self.returncode is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self: _Own) -> _Own:
        return self.start()

    def __exit__(self, *error: object) -> None:
        if self.returncode is None:
            self.stop()
        if error[0] is None:
            assert not (turns := long_turns(self.log_text())), (turns, self.log_text())
            assert not (findings := poison.findings_in(self.log_text())), findings


def choose_instances(model: Path) -> None:
    """Have the model's instances be as the variable ZT_INSTANCES says, unless it says so itself."""
    kind, config = os.environ.get("ZT_INSTANCES", ""), model / "config.pbtxt"
    text = config.read_text("utf-8") if kind and config.exists() else "INSTANCES"
    if "INSTANCES" not in text and "ensemble_scheduling" not in text:
        parameter = f'parameters {{ key: "INSTANCES" value {{ string_value: "{kind}" }} }}\n'
        config.write_text(text + parameter, "utf-8")


def ask_add_sub(server: Server, model: str = "add_sub") -> int:
    """Ask the model `add_sub`, or a copy, once, and return the HTTP status."""
    return server.infer_json(
        model, *(tensor(name, "FP32", [1.0] * 16, [1, 16]) for name in ("INPUT0", "INPUT1"))
    )[0]


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    own = "GRPC_ENABLE_FORK_SUPPORT"  # of the tests' processes alone
    environment = {key: value for key, value in os.environ.items() if key != own} | dict(extra)
    if not _is_installed():
        # Set only where it must be: models inherit it, and should see no code of the server.
        roots = [str(ROOT / root) for root in (".", "stub", "frontends", "standard", "extras")]
        if "PYTHONPATH" in extra:
            roots.append(extra["PYTHONPATH"])
        environment["PYTHONPATH"] = os.pathsep.join(roots)
    return environment


def _is_installed() -> bool:
    try:
        importlib.metadata.version("zmqtriton")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def role_of(command: Sequence[str]) -> str:
    line = " ".join(command)
    return next((role for role, pattern in _ROLE_PATTERNS if pattern.search(line)), "other")


def _command_words(pid: int) -> Iterator[str]:
    with suppress(psutil.NoSuchProcess):
        yield from psutil.Process(pid).cmdline()
