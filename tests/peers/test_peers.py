"""Clients of others call all that they have, and answers have the form of a table.

A new release of a client with a new method fails here until the table has it. Run by
`make test KIND=peers`, whose environment has the clients.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers import peers, table
from tests.peers.forms import fits
from tests.support.needs import environment_program
from tests.support.scripted import add_model, string_parameter
from tests.support.server import Server
from zmqtriton_extras.pytriton import decorators
from zmqtriton_extras.pytriton.tests.conformance import lists
from zmqtriton_extras.pytriton.tests.conformance.host import Package, run_program

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        "ZT_PEERS" not in os.environ,
        reason="make test KIND=peers has an environment with the clients, and runs this",
    ),
]

CLIENTS = pytest.mark.parametrize(
    ("client", "expected"),
    [("tritonclient", table.TRITONCLIENT), ("pytriton", table.PYTRITON)],
    ids=["tritonclient", "pytriton"],
)


@pytest.fixture(scope="module", autouse=True)
def _environment_is_there() -> None:
    environment_program(".venv-peers")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(
        tmp_path_factory.mktemp("peers") / "s",
        models=[*peers.MODELS],
        options=["--model-control-mode=explicit", "--load-model=*", "--allow-openai=true"],
    )
    server.add_model("add_sub", "spare")
    # it takes messages as they are
    add_model(server, "parrot", "chat", string_parameter("openai_messages_input", "text_input"))
    server.add_model("lettering")
    with server:
        yield server


@pytest.fixture(scope="module")
def found(server: Server) -> dict[str, Any]:
    return peers.ask(server.url.removeprefix("http://"), server.grpc_address)


@pytest.fixture(scope="module")
def of_openai(server: Server) -> Any:
    return peers.forms("openai_calls.py", server.url, "chat")


def _faults(forms: dict[str, Any], expected: dict[str, dict[str, Any]]) -> list[str]:
    """Return what is not as the table says, and methods that it does not have."""
    faults = [f"{name}: not in the table" for name in forms.keys() ^ expected.keys()]
    for name in forms.keys() & expected.keys():
        methods, answers = forms[name]["methods"], forms[name]["forms"]
        for method in sorted({*methods, *answers, *expected[name]}):
            if method not in expected[name]:
                faults.append(f"{name}.{method}: not in the table")
            elif method not in answers:
                faults.append(f"{name}.{method}: not called")
            elif not fits(expected[name][method], answers[method]):
                faults.append(f"{name}.{method}: {answers[method]}")
    return sorted(faults)


@CLIENTS
def test_each_method_of_a_client_is_answered(
    found: dict[str, Any], client: str, expected: dict[str, Any]
) -> None:
    assert [] == _faults(found[client], expected)


def test_each_name_of_pytritons_decorators_is_ours() -> None:
    names = peers.forms("decorator_names.py")

    assert "group_by_values" in names
    assert [] == [name for name in names if not hasattr(decorators, name)]


def test_pytriton_answers_without_a_server_as_was_recorded(tmp_path: Path) -> None:
    """Our answers to these cases, decorators among them, are compared in `make test`."""
    answers = run_program(Package("pytriton", str(peers.PYTHON)), "plain", tmp_path)

    assert lists.recorded("plain") == answers


@pytest.mark.parametrize("kind", ["plain", "asynchronous"])
def test_calls_of_openais_client_are_answered(of_openai: Any, kind: str) -> None:
    assert [] == [
        f"{name}: {of_openai[kind].get(name)}"
        for name, expected in table.OPENAI.items()
        if not fits(expected, of_openai[kind].get(name))
    ]


def test_each_resource_of_openais_client_is_known(of_openai: Any) -> None:
    assert [] == sorted({*of_openai["resources"]} - table.OPENAI_RESOURCES)


@pytest.mark.parametrize("who", ["triton", "zmqtriton"])
@CLIENTS
def test_answers_were_recorded_that_fit_the_table(
    who: str, client: str, expected: dict[str, Any]
) -> None:
    assert [] == _faults(_recorded(who)[client], expected)


def test_our_answers_have_all_that_real_triton_s_have(found: dict[str, Any]) -> None:
    assert [] == [
        f"{client}.{name}.{method}: {found[client][name]['forms'][method]}"
        for client, classes in _recorded("triton").items()
        for name, each in classes.items()
        for method, form in each["forms"].items()
        if not fits(_least(form), found[client][name]["forms"][method])
    ]


def _recorded(who: str) -> Any:
    return json.loads((peers.FOLDER / "recorded" / f"{who}.json").read_text("utf-8"))


def _least(form: Any) -> Any:
    """Return a form as a table would have it."""
    if isinstance(form, list):
        return [_least(each) for each in form]
    return {*form["keys"]} if isinstance(form, dict) and "keys" in form else form
