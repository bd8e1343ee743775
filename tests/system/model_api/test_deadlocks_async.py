"""Deadlocks of models that wait otherwise than by exec() in the main thread.

And what looks like one, and must finish.
"""

from __future__ import annotations

import pytest

from tests.support.scripted import ASYNC, DECOUPLED, add_model, generate, string_parameter
from tests.support.server import Server
from tests.system.model_api.test_modes_deadlocks import circle

pytestmark = pytest.mark.system

SHARED = True

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


def prepare(server: Server) -> None:
    for name in ("a", "b"):
        add_model(server, "scripted", name, ASYNC)
    for name in ("x", "y"):
        add_model(server, "scripted", name)
    add_model(server, "scripted", "wide", ASYNC + string_parameter("MAX_INFLIGHT", "2"))
    add_model(server, "scripted", "two", ASYNC)
    server.edit_config("two", "count: 1", "count: 2")
    add_model(server, "scripted", "free", ASYNC + DECOUPLED)


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


def test_as_many_batches_at_once_as_are_needed_open_thecircle(server: Server) -> None:
    assert "wide wide end" == generate(server, "wide", _AWAIT, "wide,a")
    answer = generate(server, "wide", _AWAIT, "wide,wide")
    assert answer.startswith("wide wide INVALID_ARG: Model wide - Error when running inference: ")
    assert "wide -> wide" in answer


def test_what_nobody_waits_for_is_executed_later(server: Server) -> None:
    script = """
        if text_of(request) == "again":
            open({path!r}, "w").close()
            return [reply("again")]
        import asyncio, time
        self.future = ask("a", text_of(request, "SCRIPT"), "again").async_exec()
        await asyncio.sleep(0.5)
        time.sleep(0.5)
        return [reply("first")]
    """.format(path=str(server.scratch / "again"))

    assert "first" == generate(server, "a", script, "now")
    assert "again" == generate(server, "a", script, "again")


def test_who_gives_up_waiting_is_not_interrupted(server: Server) -> None:
    script = """
        import asyncio
        if text_of(request) == "again":
            return [reply("again")]
        question = ask("a", text_of(request, "SCRIPT"), "again").async_exec()
        try:
            answer = answer_of(await asyncio.wait_for(question, 1))
        except asyncio.TimeoutError:
            answer = "late"
        return [reply(answer)]
    """

    assert "late" == generate(server, "a", script, "now")


def test_who_waits_for_something_else_is_not_interrupted(server: Server) -> None:
    script = """
        import asyncio, threading
        if text_of(request) == "again":
            return [reply("again")]
        question = ask("a", text_of(request, "SCRIPT"), "again").async_exec()
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        threading.Timer(1, lambda: loop.call_soon_threadsafe(event.set)).start()
        await asyncio.wait([question, asyncio.ensure_future(event.wait())],
                           return_when=asyncio.FIRST_COMPLETED)
        return [reply("answered" if question.done() else "event")]
    """

    assert "event" == generate(server, "a", script, "now")


def test_a_decoupled_coroutine_holds_no_instance(server: Server) -> None:
    script = """
        sender = request.get_response_sender()
        first, _, rest = text_of(request).partition(",")
        answer = ""
        if first:
            asked = await ask(first, text_of(request, "SCRIPT"), rest).async_exec(decoupled=True)
            answer = " " + answer_of(next(iter(asked)))
        sender.send(reply(self.args["model_name"] + answer), FINAL)
    """

    assert "free free free" == generate(server, "free", script, "free,free")
