"""The problems that would stop the start of a server, all of them at once."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqtriton.options import parse
from zmqtriton.supervisor.machine.fitness.start_checks import check_numbers, find_problems

_OFF = ("--allow-grpc=false", "--allow-metrics=false", "--http-address=127.0.0.1")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that a process of another program has: this one."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def problems(tmp_path: Path, *words: str) -> list[str]:
    return list(find_problems(parse([f"--model-repository={tmp_path}", *_OFF, *words])))


def test_a_server_that_can_start_has_none(tmp_path: Path) -> None:
    log = tmp_path / "log"

    assert [] == problems(tmp_path, "--http-port=0", f"--log-file={log}")
    assert not log.exists()


def test_all_are_told(tmp_path: Path, taken: int) -> None:
    tls = ("--http-use-ssl=true", "--http-server-cert=/no/cert", "--http-server-key=/no/key")
    words = (
        "--exit-timeout-secs=-1",
        "--http-workers=5000",
        "--grpc-processes=6000",
        "--http-restricted-api=trace:k=@/no/secret",
        "--tokens=/no/tokens",
        *tls,
        "--log-file=/no/directory/log",
        f"--http-port={taken}",
    )

    texts = problems(tmp_path, *words)

    beginnings = (
        "--exit-timeout-secs=-1: ",
        "--http-workers=5000: ",
        "--http-restricted-api: /no/secret",
        "--tokens=/no/tokens: ",
        "--http-server-cert=/no/cert, ",
        "cannot open the log file '/no/directory/log'",
        "failed to start HTTP service: ",
    )
    assert len(beginnings) == len(texts), texts
    assert all(map(str.startswith, texts, beginnings)), texts


def test_a_port_of_a_running_server_is_no_problem_and_another_beside_it_is(
    tmp_path: Path, taken: int
) -> None:
    program = tmp_path / "server.py"
    program.write_text(
        "import socket\nfrom zmqtriton_floor import prctl\nprctl.set_name('zmqtriton')\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "print(server.getsockname()[1], flush=True)\ninput()\n"
    )
    command = [sys.executable, str(program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        ports = [f"--http-port={int(running.stdout.readline())}", f"--metrics-port={taken}"]
        texts = problems(tmp_path, *ports, "--allow-metrics=true")
        running.communicate(b"\n")

    [text] = texts
    assert text.startswith("failed to start Metrics service: ")


@pytest.mark.parametrize("word", ["--exit-timeout-secs=-1", "--grpc-processes=6000"])
def test_numbers_stop_the_start(word: str) -> None:
    with pytest.raises(OSError, match=word):
        check_numbers(parse(["--model-repository=/srv", word]))
