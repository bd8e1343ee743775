"""Models that load, unload and ask for others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import scripted
from tests.support.server import Copy, Server

_MESSAGE = "Failed to process the request for model 'scripted_0_0', message: "
_NOT_EXPLICIT = (
    "explicit model load / unload is not allowed if polling is enabled. Start the server with "
    "--model-control-mode=explicit"
)


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            "scripted",
            "add_sub",
            Copy("scripted", "busy"),
            *(
                Copy("loader", name, scripted.string_parameter("LOADS", loads))
                for name, loads in (("outer", "middle"), ("middle", "add_sub"))
            ),
        ],
        options=(
            "--model-control-mode=explicit",
            "--load-model=scripted",
            "--load-model=busy",
            # One place for loads: who waits for another load must not keep it.
            "--model-load-thread-count=1",
        ),
        frontends=(),
    ),
]


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
    outcomes: list[str] = json.loads(scripted.generate(server, "scripted", script))
    return outcomes


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


@pytest.mark.row("A95", "F20", "C76")
def test_without_explicit_control_models_are_asked_for_only(tmp_path: Path) -> None:
    with Server(tmp_path, models=["scripted"], frontends=()) as server:
        outcomes = tries(
            server,
            'load_model("scripted")',
            'unload_model("scripted")',
            'is_model_ready("scripted")',
        )

        assert [
            f"Failed to load model: {_MESSAGE}{_NOT_EXPLICIT}",
            f"Failed to unload model: {_MESSAGE}{_NOT_EXPLICIT}",
            "True",
        ] == outcomes
        for verb in ("load", "unload"):
            path = f"/v2/repository/models/scripted/{verb}"
            assert (503, {"error": _NOT_EXPLICIT}) == server.request_json(path, {})
