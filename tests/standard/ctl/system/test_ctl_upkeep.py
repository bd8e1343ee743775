"""`zmqtriton-ctl reload`, `config` and `logs --previous` against a server in the usual mode."""

from __future__ import annotations

import json
import os
import signal

import pytest
from click.testing import Result

from tests.standard.ctl.system.commands import OPTION, ctl
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=("add_sub", "counting"),
        options=(
            OPTION,
            "--model-control-mode=none",
            "--http-restricted-api=shared-memory:x-key=SECRET",
        ),
        frontends=(),
    ),
]


@pytest.mark.row("L13")
def test_what_has_changed_is_reloaded_in_mode_none(server: Server) -> None:
    code = server.repository / "add_sub" / "1" / "model.py"
    good = code.read_text()

    unchanged = ctl(server, "reload")
    code.write_text(f"{good}\n# changed\n")
    changed = ctl(server, "reload")
    code.write_text(f"{good}\nraise OSError('broken')\n")
    broken = ctl(server, "reload", "add_sub")
    is_ready = server.status("/v2/models/add_sub/ready")
    code.write_text(good)
    repaired = ctl(server, "reload", "add_sub")
    misspelt = ctl(server, "reload", "add_subb")

    assert (0, "nothing has changed (2 models)\n") == (unchanged.exit_code, unchanged.stdout)
    assert (0, "loaded add_sub\n") == (changed.exit_code, changed.stdout)
    assert (1, "") == (broken.exit_code, broken.stdout)
    assert "error: add_sub: load failed" in broken.stderr
    assert "OSError: broken" in broken.stderr
    assert 200 == is_ready
    assert (0, "loaded add_sub\n") == (repaired.exit_code, repaired.stdout)
    assert "did you mean 'add_sub'?" in misspelt.stderr


@pytest.mark.row("L13")
def test_the_configuration_in_use_is_shown(server: Server) -> None:
    options, everything = ctl(server, "config"), ctl(server, "config", "--all", "-o", "json")
    text, document = ctl(server, "config", "counting"), ctl(server, "config", "counting", "-ojson")
    unknown = ctl(server, "config", "add_sub", "7")

    assert "SECRET" not in options.stdout + everything.stdout
    shown = json.loads(everything.stdout)
    assert (server.http_port, "none") == (shown["http-port"], shown["model-control-mode"])
    assert "--http-restricted-api" in options.stdout
    assert "--model-control-mode" not in options.stdout
    config = json.loads(document.stdout)
    assert config["name"] == "counting"
    assert 'name: "counting"' in text.stdout
    assert config["instance_group"], "this is completed by the server"
    assert 1 == unknown.exit_code
    assert "version 7 of model 'add_sub' does not serve" in unknown.stderr


@pytest.mark.row("L13")
def test_the_last_lines_of_a_dead_process_are_shown_with_the_reason(server: Server) -> None:
    (pid,) = server.stub_pids("counting")
    os.kill(pid, signal.SIGSEGV)
    eventually(lambda: server.stub_pids("counting") not in ([], [pid]), 60, "a new stub")
    eventually(lambda: server.status("/v2/models/counting/ready") == 200, 60, "ready")

    def last_words() -> Result | None:
        shown = ctl(server, "logs", "--previous")
        return shown if "SIGSEGV" in shown.stderr and "Fatal" in shown.stdout else None

    died = eventually(last_words, 60, "the death")
    other = ctl(server, "logs", "--previous", "add_sub", "--instance", "add_sub_0_7")
    since = ctl(server, "logs", "counting", "--since", "1h", "--instance", "counting_0_0")

    assert f"counting_0_0, pid {pid}: killed by SIGSEGV" in died.stderr
    assert "Fatal Python error: Segmentation fault" in died.stdout
    assert "there is no instance 'add_sub_0_7'; known: add_sub_0_0" in other.stderr
    assert "has died: killed by SIGSEGV" in since.stdout
    assert "" == ctl(server, "logs", "--since", "0s").stdout
