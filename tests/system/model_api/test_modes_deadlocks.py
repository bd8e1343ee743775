"""Models that ask models that ask models, with real clients; and those that ask themselves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.scripted import add_model, generate
from tests.support.server import Server

pytestmark = pytest.mark.system

SHARED = True

#: ARGUMENT names the models that are asked in turn.
_CHAIN = """
    first, _, rest = text_of(request).partition(",")
    if not first:
        return [reply("end")]
    script = text_of(request, "SCRIPT")
    answer = answer_of({})
    return [reply(self.args["model_name"] + " " + answer)]
"""
_EXEC = _CHAIN.format("ask(first, script, rest).exec()")


def circle(*names: str) -> str:
    return (
        f"INVALID_ARG: Model {names[0]} - Error when running inference: BLS calls would "
        f"deadlock: {' -> '.join(names)}"
    )


def prepare(server: Server) -> None:
    for name in ("a", "b", "c"):
        add_model(server, "scripted", name)
    add_model(server, "scripted", "two")
    server.edit_config("two", "count: 1", "count: 2")


@pytest.mark.parametrize(
    ("model", "models", "answer"),
    [
        ("a", "b,c,two", "a b c end"),
        ("a", "a", f"a {circle('a', 'a')}"),
        ("a", "b,a", f"a b {circle('a', 'b', 'a')}"),
        ("two", "a,b,c,a", f"two a b c {circle('a', 'b', 'c', 'a')}"),
        # a second instance opens the circle
        ("two", "two,a", "two two end"),
        ("two", "a,two,a", f"two a two {circle('a', 'two', 'a')}"),
        ("two", "two,two", f"two two {circle('two', 'two', 'two')}"),
    ],
)
def test_models_that_ask_each_other(server: Server, model: str, models: str, answer: str) -> None:
    assert answer == generate(server, model, _EXEC, models)


def test_two_chains_that_wait_for_each_other(server: Server) -> None:
    script = """
        import os, time
        mark, other, rest = text_of(request).split(",")
        if not rest:
            return [reply("end")]
        open(os.path.join(mark, self.args["model_name"]), "w").close()
        while not os.path.exists(os.path.join(mark, other)):
            time.sleep(0.01)
        answer = answer_of(ask(rest, text_of(request, "SCRIPT"), "x,x,").exec())
        return [reply(self.args["model_name"] + " " + answer)]
    """
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(generate, server, "a", script, f"{server.scratch},b,b")
        second = threads.submit(generate, server, "b", script, f"{server.scratch},a,a")
        texts = sorted([first.result(60), second.result(60)])

    # Whichever closed the circle is told; the other one gets through.
    assert texts in (
        [f"a {circle('b', 'a', 'b')}", "b end"],
        ["a end", f"b {circle('a', 'b', 'a')}"],
    )
