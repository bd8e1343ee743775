"""Keys of restricted APIs: where they may stand, and who is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.options import parse
from zmqtriton.supervisor.machine import secrets
from zmqtriton.supervisor.machine.secrets import SecretError
from zmqtriton.supervisor.server_processes.introductions import ServerInfo
from zmqtriton_floor import wire


def key_of(value: str) -> str:
    """Return what a key given so comes to."""
    options = parse(["--model-repository=/m", f"--http-restricted-api=trace:k={value}"])
    return secrets.resolve_key_files(options).http_restricted_api[0].value


def test_a_key_may_stand_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("se=cret\n")

    assert "se=cret" == key_of(f"@{tmp_path}/key")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert "se=cret" == key_of("@key")


def test_a_key_that_begins_like_a_file_is_written_with_two_signs() -> None:
    assert ("plain", "@home", "a@b") == (key_of("plain"), key_of("@@home"), key_of("a@b"))


@pytest.mark.parametrize("content", ["", "\n", "two\nlines", "x" * 5000, "\x00", None])
def test_a_file_without_one_key_is_an_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "key").write_text(content)

    with pytest.raises(SecretError, match=r"^--http-restricted-api: .*/key: "):
        key_of(f"@{tmp_path}/key")


def test_who_checks_a_key_is_told_it_and_nobody_else() -> None:
    settings, private = secrets.split_private_settings(
        {
            "id": "triton",
            "http_restricted_api": [[["trace"], "k", "http-secret"]],
            "grpc_restricted_protocol": [[["trace"], "k", "grpc-secret"]],
            "zmq_door_restricted": [[["trace"], "k", "door-secret"]],
            "http_allowed_origin": [],
            "tokens": "/path/of/tokens",
            "announce": ["https://fleet.example/announcing-secret"],
            "announce_token_file": "/announcer/token",
            **{f"{s}_{f}": f"/{s}/{f}" for s in ("http", "grpc") for f in _FILES},
        }
    )
    world = SupervisorHarness(make_blueprint("m"))
    server = ServerInfo("/run/x", json.dumps(settings), lambda: bytes(16), private)
    world.core._introductions._server = server
    world.start().fork_http_worker()

    told = {
        role: world.messages_to(role, wire.Bootstrap)[0].settings
        for role in ("broker", "http-arbiter", "http", "grpc", "metrics", "stub")
    }

    assert ["http"] == [role for role, text in told.items() if "http-secret" in text]
    assert ["grpc"] == [role for role, text in told.items() if "grpc-secret" in text]
    assert [] == [role for role, text in told.items() if "door-secret" in text]
    assert "door-secret" in str(private["door"])
    assert [] == [r for r, text in told.items() if "announc" in text]
    assert "announcing-secret" in str(private["announcer"])
    assert "/announcer/token" == private["announcer"]["announce_token_file"]
    assert ["http"] == [role for role, text in told.items() if "/http/server_key" in text]
    assert ["http", "grpc", "metrics"] == [r for r, text in told.items() if "/of/tokens" in text]
    assert all('"id": "triton"' in text for text in told.values())


_FILES = ("server_cert", "server_key", "root_cert")


def test_ps_shows_no_key() -> None:
    program = (
        "import sys; from zmqtriton.options import parse;"
        "from zmqtriton.supervisor.machine import secrets;"
        "secrets.hide_from_command_line(parse(sys.argv[1:]));"
        "print(open('/proc/self/cmdline').read().replace(chr(0), ' '))"
    )
    words = [
        "--model-repository=/m",
        "--http-restricted-api=trace:k=one",
        *("--grpc-restricted-protocol", "health:k=two=2"),
        "--grpc-restricted-protocol=trace:k=@/run/file",
        "--id=one",
    ]

    shown = subprocess.check_output([sys.executable, "-c", program, *words], text=True)

    for part in ("api=trace:k=***", "health:k=*****", "trace:k=@/run/file"):
        assert part in shown
