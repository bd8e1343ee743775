"""Refusals of the command before it starts anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zmqtriton.command_line import read_options
from zmqtriton.main import main
from zmqtriton.options import Options

_MODE = "--trace-config=mode=opentelemetry"


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "x", "Invalid option value. Got x"),
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "ftp://c",
            "Only http and https addresses are possible. Got ftp://c",
        ),
    ],
)
def test_a_variable_that_sends_traces_nowhere_is_refused(
    variable: str,
    value: str,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, value)

    assert 1 == main(["--model-repository=/nowhere", _MODE])

    assert f'Bad option: "{variable}".\n{text}\n' == capfd.readouterr().err


@pytest.mark.parametrize("words", [["check", "."], ["deploy"], ["protos", "protos"]])
def test_a_pipe_that_nobody_reads_any_more_is_no_error(words: list[str], tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "wb") as nobody:
        done = subprocess.run(
            [sys.executable, "-m", "zmqtriton", *words],
            stdout=nobody,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            timeout=60,
            check=False,
        )

    assert (1, b"") == (done.returncode, done.stderr)


def test_a_letter_that_the_terminal_lacks_is_escaped(tmp_path: Path) -> None:
    version = tmp_path / "models" / "\u540d" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text("x = (")
    programs = {
        "zmqtriton": ["check", "models"],
        "zmqtriton.ctl.main": ["env", "--environment-directory=cache", "prepare", "models"],
    }

    checked, simulated = (
        subprocess.run(
            [sys.executable, "-m", program, *words],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "latin-1"},
            cwd=tmp_path,
            timeout=60,
            check=False,
        )
        for program, words in programs.items()
    )

    assert b"\\u540d" in checked.stdout
    assert b"\\u540d" in simulated.stdout
    assert (b"", b"") == (checked.stderr, simulated.stderr)


@pytest.mark.parametrize(
    ("words", "option", "name"),
    [
        (["--trace-config=triton,file=/x"], "--trace-config", "tracer"),
        (["--model-repository=s3://bucket/x"], "--model-repository", "storage"),
        (["--agent-check-port=9000"], "--agent-check-port", "agent_check"),
        (["--grpc-transport=grpcio"], "--grpc-transport", "grpcio"),
        (["--exit-drain-secs=2"], "--exit-drain-secs", "draining"),
        (["--model-control-mode=explicit", "--load-on-demand"], "--load-on-demand", "on_demand"),
        (["--reload"], "--reload", "reloading"),
        (["--take-over", "--one-by-one"], "--one-by-one", "on_demand"),
    ],
)
def test_an_option_whose_add_on_is_not_installed_is_refused(
    words: list[str],
    option: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("zmqtriton.addons._own_declarations", lambda: None)

    assert 1 == main(["--model-repository=/nowhere", *words])

    text = f"It needs the add-on '{name}', which is not installed.\n"
    assert f'Bad option: "{option}".\n{text}' == capfd.readouterr().err


def test_a_server_without_the_add_on_of_metrics_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--model-repository=/nowhere"]
    with_them = read_options(words)
    monkeypatch.setattr("zmqtriton.addons._own_declarations", lambda: None)

    without = read_options(words)

    assert isinstance(with_them, Options)
    assert isinstance(without, Options)
    assert (True, False) == (with_them.allow_metrics, without.allow_metrics)
