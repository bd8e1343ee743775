"""Models that are loaded by command, and those that load, unload and ask for others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.stamps import control_model
from tests.standard.ctl.system.commands import ctl
from tests.support import scripted
from tests.support.server import MODELS_DIRECTORY, Copy, Server, Written
from tests.support.waiting import eventually

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a start-up model that there is not."""
    directory = tmp_path_factory.mktemp("control")
    options = [
        f"--runtime-directory={directory / 'run'}",
        "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in ("scripted", "busy", "add_sub", "missing")),
        "--exit-on-error=false",
        # One place for loads: who waits for another load must not keep it.
        "--model-load-thread-count=1",
    ]
    models: list[str | Path | Copy | Written] = [
        "scripted",
        "add_sub",
        Copy("scripted", "busy"),
        Copy("add_sub", "unasked"),
        *(
            Copy("loader", name, scripted.string_parameter("LOADS", loads))
            for name, loads in (("outer", "middle"), ("middle", "add_sub"))
        ),
    ]
    server = Server(directory / "s", models, options=options, frontends=())
    server.launch()
    try:
        eventually(lambda: server.status("/v2/models/scripted/ready") == 200, 60, "it serves")
        yield server
    finally:
        assert 0 == server.stop()


def tries(server: Server, *calls: str) -> list[str]:
    """Return what each call of pb_utils returns, or the text of its error."""
    lines = ", ".join(f"text(lambda: (pb_utils.{call}))" for call in calls)
    script = f"""
def text(call):
    try:
        return str(call())
    except pb_utils.TritonModelException as error:
        return str(error)
import json
return [reply(json.dumps([{lines}]))]
"""
    return json.loads(scripted.generate(server, "scripted", script))


@pytest.mark.row("A95")
def test_a_model_loads_asks_for_and_unloads_another(server: Server) -> None:
    assert "" == server.control_model("unload", "add_sub")

    outcomes = tries(
        server,
        'is_model_ready("add_sub")',
        'load_model("add_sub")',
        'is_model_ready("add_sub"), pb_utils.is_model_ready("add_sub", "1")',
        'is_model_ready("add_sub", "2"), pb_utils.is_model_ready("unknown")',
        'unload_model("add_sub", unload_dependents=True)',
        'is_model_ready("add_sub")',
    )

    assert ["False", "None", "(True, True)", "(False, False)", "None", "False"] == outcomes


@pytest.mark.row("A95")
def test_threads_of_a_model_may_ask_and_the_stub_goes_on(server: Server) -> None:
    assert "" == server.control_model("load", "busy")
    script = """
    import threading
    found = []
    def thread():
        pb_utils.load_model("add_sub")
        found.append(pb_utils.is_model_ready("add_sub"))
    threads = [threading.Thread(target=thread) for _ in range(4)]
    for each in threads:
        each.start()
    # The main thread asks another model, and the control plane too, meanwhile.
    other = ask("busy", "return [reply('here')]").exec()
    found.append(answer_of(other))
    found.append(pb_utils.is_model_ready("scripted"))
    for each in threads:
        each.join()
    return [reply(sorted(map(str, found)))]
    """
    assert "['True', 'True', 'True', 'True', 'True', 'here']" == scripted.generate(
        server, "scripted", script
    )
    assert "" == server.control_model("unload", "add_sub")


@pytest.mark.row("A95")
def test_a_model_may_load_others_in_its_initialize(server: Server) -> None:
    assert "" == server.control_model("load", "outer")

    # It is ready when its initialize has returned, and not before.
    text = scripted.generate(server, "outer", "")
    assert text.startswith("(True, False) Failed to check model readiness: models are controlled")
    assert 200 == server.status("/v2/models/middle/ready")
    assert 200 == server.status("/v2/models/add_sub/ready")


@pytest.mark.row("F03", "F16", "F42")
def test_a_server_that_goes_on_is_alive_with_what_could_be_loaded(server: Server) -> None:
    log = server.log_text()

    assert "failed to poll model 'missing': model not found in any model repository." in log
    assert "Internal: failed to load all models" in log
    assert 200 == server.status("/v2/health/live")
    assert 200 == server.status("/v2/models/scripted/ready")
    assert {"name": "unasked"} in server.request_json("/v2/repository/index", {})[1], (
        "not asked for"
    )


@pytest.mark.row("F22")
def test_repositories_are_added_and_taken_away_by_command(server: Server, tmp_path: Path) -> None:
    shutil.copytree(MODELS_DIRECTORY / "add_sub", tmp_path / "late")
    register, unregister = (
        ("repository", what, str(tmp_path)) for what in ("register", "unregister")
    )

    added = ctl(server, *register)
    assert (0, True) == (added.exit_code, str(tmp_path) in added.stdout.split()), added.stderr
    assert (200, "") == control_model(server, "load", "late")
    assert f"error: model repository '{tmp_path}' has already been registered" in (
        ctl(server, *register).stderr
    )

    assert 0 == ctl(server, *unregister).exit_code
    assert 200 == server.status("/v2/models/late/ready"), "what was loaded stays"
    assert "repository not found" in ctl(server, *unregister).stderr
    control_model(server, "unload", "late")
