"""A server to be attacked, its models and tokens, and the processes that attack it."""

from __future__ import annotations

import random
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.faults.attacks import over_routes
from tests.faults.attacks.target import (
    ECHO,
    ENDLESS,
    OVERWRITING,
    ROUTED,
    SIZED,
    SPOKEN,
    STREAMED,
    TEMPLATES,
    Target,
)
from tests.faults.attacks.watching import MIB, Gauge, Machine, Reading
from tests.faults.mixed_clients import Ask
from tests.support.needs import find_tool
from tests.support.scripted import extend_config, string_parameter
from tests.support.server import Server
from zmqtriton_floor import execution_progress
from zmqtriton_floor.token_file import Grant

#: Those that honest clients ask.
_HONEST = ("journal", "tokens")
#: Answers with as much as it is told.
_SIZED = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        sizes = [int(pb_utils.get_input_tensor_by_name(r, "KIB").as_numpy()[0]) for r in requests]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(size << 8, np.float32))])
            for size in sizes
        ]
"""
#: The same, and overwrites the page that tells how far it is.
_OVERWRITING = f"""
import ctypes
{_SIZED.replace("sizes = ", "overwrite(); sizes = ")}
def overwrite():
    for line in open("/proc/self/maps"):
        place, rights, *_ = line.split()
        begin, end = (int(part, 16) for part in place.split("-"))
        if rights == "rw-s" and end - begin == {execution_progress.SIZE}:
            ctypes.memset(begin, 0xFF, end - begin)
"""
_CONFIG = """
backend: "python"
input { name: "KIB" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }
"""
_LOOP = "{{% for {0} in range(99999) %}}{1}{{% endfor %}}"
#: What a template does again and again.
_WORK = (
    "{{ 'a' * 100000 }}",
    "{% set x = 'a' * 1000000 %}",
    "{{ messages | tojson }}",
    "{{ (range(9999) | list | join('x')) | upper }}",
    "{% if '" + "a" * 40 + "' in messages %}x{% endif %}",
)


def _prepare(server: Server, chance: random.Random) -> None:
    for source, name in (
        ("identity_fp32", ECHO),
        ("tokens", STREAMED),
        ("parrot", SPOKEN),
        *(("parrot", f"{ENDLESS}{number}") for number in range(TEMPLATES)),
    ):
        server.add_model(source, name)
        config = server.repository / name / "config.pbtxt"
        config.write_text(config.read_text().replace(f'name: "{source}"', f'name: "{name}"'))
    for number in range(TEMPLATES):
        template = chance.choice(_WORK)
        for depth in range(chance.randint(2, 4)):
            template = _LOOP.format(f"i{depth}", template)
        (server.repository / f"{ENDLESS}{number}" / "chat_template.jinja").write_text(template)
    for name, code in ((SIZED, _SIZED), (OVERWRITING, _OVERWRITING), (ROUTED, _SIZED)):
        server.write_model(name, _CONFIG, code)
    (server.repository / ROUTED / "1" / "routes.py").write_text(over_routes.CODE)
    for key, value in (("ROUTES_SECONDS", 3), ("max_memory_bytes", 400 << 20)):
        extend_config(server, ROUTED, string_parameter(key, str(value)))


def _write_token(path: Path) -> str:
    """Write the file of tokens, with one for everything; return it."""
    token = secrets.token_hex(16)
    path.write_text(
        f"attacker sha256:{Grant.digest_of(token).hex()} scopes=infer,control,metrics\n"
    )
    path.chmod(0o600)
    return token


#: What clients may make each kind of process hold.
LIMIT = 256 * MIB
#: Of each process of the server: less than one attack opens.
DESCRIPTORS = 600


@contextmanager
def serving(seed: int, directory: Path) -> Iterator[tuple[Server, Target]]:
    """Serve those who attack and those who do not; seeds that are odd have tokens."""
    options = [
        f"--client-memory-byte-size={LIMIT}",
        "--allow-openai",
        "--zmq-door",
        "--routes",
        f"--runtime-directory={directory / 'r'}",
    ]
    token = ""
    if seed % 2:
        token = _write_token(directory / "tokens")
        options.append(f"--tokens={directory / 'tokens'}")
    server = Server(directory / "s", models=_HONEST, options=options)
    prlimit = find_tool("prlimit", package="util-linux")
    server.wrapper = (prlimit, f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")
    _prepare(server, random.Random(seed))
    with server:
        yield server, Target(server.http_port, server.grpc_port, f"{directory}/r/door", token)


def _attack(names: Sequence[str], chance: random.Random, target: Target, seconds: float) -> None:
    """Run attacks side by side until all have ended."""
    running = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.faults.attacks.one",
                name,
                str(chance.randrange(1 << 30)),
                str(seconds),
                target.written(),
            ]
        )
        for name in names
    ]
    end = time.monotonic() + seconds + 10
    for process in running:
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Round(NamedTuple):
    """One attack, or several at once, and the memory of the server meanwhile and then."""

    names: tuple[str, ...]
    begun: float
    end: float
    peak: Reading
    after: Reading

    @property
    def name(self) -> str:
        return "several together" if len(self.names) > 1 else "".join(self.names) or "nothing"

    def asks(self, all_asks: Sequence[Ask]) -> list[Ask]:
        """Return those that began meanwhile."""
        return [one for one in [*all_asks] if self.begun <= one.begun < self.end]


class Scene(NamedTuple):
    """A server that is attacked, and what watches it."""

    target: Target
    asks: Sequence[Ask]
    machine: Machine
    gauge: Gauge

    def attack(
        self, names: tuple[str, ...], chance: random.Random, seconds: float, rest_s: float
    ) -> Round:
        """Attack, and let the server rest; without a name nothing attacks."""
        self.gauge.take_peak()
        begun = time.monotonic()
        if names:
            _attack(names, chance, self.target, seconds)
        else:
            time.sleep(seconds)
        time.sleep(rest_s)
        return Round(names, begun, time.monotonic(), self.gauge.take_peak(), self.gauge.newest)
