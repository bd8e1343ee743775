"""Models that wait for each other or themselves, by exec() and otherwise."""

from __future__ import annotations

import pytest

from tests.support.scripted import ASYNC, generate
from tests.support.server import Copy, Server

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            *(Copy("scripted", name, ASYNC) for name in ("a", "b")),
            *(Copy("scripted", name) for name in ("x", "y", "z")),
            Copy("scripted", "twice", edit=("count: 1", "count: 2")),
            Copy("scripted", "two", ASYNC, ("count: 1", "count: 2")),
        ]
    ),
]

#: ARGUMENT names the models that are asked in turn; `{}` is how.
_CHAIN = """
    import asyncio, threading
    from concurrent.futures import ThreadPoolExecutor
    first, _, rest = text_of(request).partition(",")
    if not first:
        return [reply("end")]
    script = text_of(request, "SCRIPT")
    {}
    return [reply(self.args["model_name"] + " " + answer)]
"""
_EXEC = _CHAIN.format("answer = answer_of(ask(first, script, rest).exec())")
_AWAIT = _CHAIN.format("answer = answer_of(await ask(first, script, rest).async_exec())")
_GATHER = _CHAIN.format(
    """
    answers = await asyncio.gather(*(ask(first, script, rest).async_exec() for _ in range(2)))
    answer = "; ".join(sorted(answer_of(one) for one in answers))
"""
)
_WAIT = _CHAIN.format(
    """
    tasks = [asyncio.ensure_future(ask(first, script, rest).async_exec())]
    done, _ = await asyncio.wait(tasks)
    answer = answer_of(done.pop().result())
"""
)
_TO_THREAD = _CHAIN.format(
    """
    loop = asyncio.get_running_loop()
    answer = answer_of(await loop.run_in_executor(None, ask(first, script, rest).exec))
"""
)
_OWN_LOOP = _CHAIN.format(
    """
    async def main():
        return await ask(first, script, rest).async_exec()
    answer = answer_of(asyncio.run(main()))
"""
)
_ITERATOR = _CHAIN.format(
    """
    answers = [answer_of(one) for one in ask(first, script, rest).exec(decoupled=True)]
    answer = answers[0]
"""
)
_JOIN = _CHAIN.format(
    """
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(answer_of(ask(first, script, rest).exec()))
    )
    thread.start()
    thread.join()
    answer = answers[0]
"""
)
_RESULT = _CHAIN.format(
    """
    with ThreadPoolExecutor(2) as threads:
        answer = answer_of(threads.submit(ask(first, script, rest).exec).result())
"""
)


def circle(*names: str) -> str:
    return (
        f"INVALID_ARG: Model {names[0]} - Error when running inference: BLS calls would "
        f"deadlock: {' -> '.join(names)}"
    )


@pytest.mark.parametrize(
    ("model", "models", "answer"),
    [
        ("x", "y,z,twice", "x y z end"),
        ("x", "x", f"x {circle('x', 'x')}"),
        ("x", "y,x", f"x y {circle('x', 'y', 'x')}"),
        ("twice", "x,y,z,x", f"twice x y z {circle('x', 'y', 'z', 'x')}"),
        # a second instance opens the circle
        ("twice", "twice,x", "twice twice end"),
        ("twice", "x,twice,x", f"twice x twice {circle('x', 'twice', 'x')}"),
        ("twice", "twice,twice", f"twice twice {circle('twice', 'twice', 'twice')}"),
    ],
)
def test_models_that_ask_each_other(server: Server, model: str, models: str, answer: str) -> None:
    assert answer == generate(server, model, _EXEC, models)


@pytest.mark.row("L20")
@pytest.mark.parametrize(
    ("model", "script", "models", "answer"),
    [
        ("a", _AWAIT, "a", f"a {circle('a', 'a')}"),
        ("a", _WAIT, "a", f"a {circle('a', 'a')}"),
        ("a", _TO_THREAD, "a", f"a {circle('a', 'a')}"),
        ("a", _AWAIT, "b,a", f"a b {circle('a', 'b', 'a')}"),
        # several questions to its own model at once
        ("a", _GATHER, "a", f"a {circle('a', 'a')}; {circle('a', 'a')}"),
        # as many instances as are needed open the circle
        ("two", _AWAIT, "two,a", "two two end"),
        ("two", _AWAIT, "two,two", f"two two {circle('two', 'two', 'two')}"),
    ],
)
def test_coroutines_that_await_each_other(
    server: Server, model: str, script: str, models: str, answer: str
) -> None:
    assert answer == generate(server, model, script, models)


@pytest.mark.row("L20")
@pytest.mark.parametrize(
    "script", [_ITERATOR, _JOIN, _RESULT, _OWN_LOOP], ids=["iterator", "join", "result", "loop"]
)
def test_a_model_that_waits_for_itself_otherwise(server: Server, script: str) -> None:
    assert f"x {circle('x', 'x')}" == generate(server, "x", script, "x")
    assert f"x y {circle('x', 'y', 'x')}" == generate(server, "x", script, "y,x")
