"""Models whose execute() is a coroutine, with real clients."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.scripted import (
    ASYNC,
    DECOUPLED,
    add_model,
    generate,
    generate_stream,
    open_stream,
    string_parameter,
)
from tests.support.server import Copy, Server
from tests.support.waiting import eventually
from tests.system.shared_server import SharedServer

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            Copy("scripted", "plain", ASYNC),
            Copy("scripted", "wide", ASYNC + string_parameter("MAX_INFLIGHT", "4")),
            Copy("scripted", "streams", ASYNC + DECOUPLED),
            Copy("scripted", "narrow", ASYNC + DECOUPLED + string_parameter("MAX_INFLIGHT", "2")),
            Copy("scripted", "echo"),
        ]
    ),
]

_SEND = "request.get_response_sender().send(reply(text_of(request)), FINAL)"
#: Waits until as many are here as it says, the first time; alone it would wait for the clock.
_MEET = """
    import asyncio
    wanted = int(text_of(request))
    met = self.kept.setdefault("met", set())
    self.kept["here"] = self.kept.get("here", 0) + 1
    most = self.kept["most"] = max(self.kept.get("most", 0), self.kept["here"])
    for _ in range(1000):
        if self.kept["here"] >= wanted:
            met.add(wanted)
        if wanted in met:
            break
        await asyncio.sleep(0.01)
    self.kept["here"] -= 1
"""


def _all(server: Server, model: str, script: str, arguments: list[str]) -> list[list[str]]:
    with ThreadPoolExecutor(len(arguments)) as threads:
        return list(threads.map(lambda one: generate_stream(server, model, script, one), arguments))


@pytest.mark.row("A26")
def test_default_mode_awaits_one_batch_before_the_next(server: Server) -> None:
    script = """
        import asyncio
        loops = self.kept.setdefault("loops", set())
        loops.add(asyncio.get_running_loop())
        here = self.kept["here"] = self.kept.get("here", 0) + 1
        await asyncio.sleep(0.02)
        self.kept["here"] -= 1
        return [reply(f"{here} on {len(loops)}")]
    """

    assert [["1 on 1"]] * 8 == _all(server, "plain", script, [str(i) for i in range(8)])


@pytest.mark.row("A26")
@pytest.mark.parametrize(("model", "count"), [("wide", 4), ("narrow", 2)])
def test_as_many_at_once_as_max_inflight_says(server: Server, model: str, count: int) -> None:
    end = "request.get_response_sender().send(reply(most), FINAL)"

    texts = _all(server, model, f"{_MEET}\n    {end}", [str(count)] * 3 * count)

    assert str(count) == max(text for [text] in texts)


@pytest.mark.row("A26")
def test_an_exception_among_several_fails_its_own_request(server: Server) -> None:
    script = f"{_MEET}\n    if most: raise ValueError('mine')\n"

    texts = _all(server, "wide", script, ["3"] * 3)

    prefix = "Failed to process the request(s) for model 'wide_0_0', message: ValueError: mine"
    assert 3 == len(texts)
    for [text] in texts:
        assert text.startswith(f"{prefix}\n\nAt:\n  <script>(")
    assert "on" == generate(server, "wide", "return [reply(text_of(request))]", "on")


@pytest.mark.row("A26")
def test_decoupled_mode_begins_the_next_batch_at_once(server: Server) -> None:
    assert [["12"]] * 12 == _all(server, "streams", f"{_MEET}\n    {_SEND}", ["12"] * 12)


@pytest.mark.row("A26")
def test_an_exception_in_the_background_is_logged_and_ends_the_stream(server: Server) -> None:
    script = """
        import asyncio
        sender = request.get_response_sender()
        sender.send(reply("one"))
        await asyncio.sleep(0.01)
        raise ValueError("background " + text_of(request))
    """

    first, error = generate_stream(server, "streams", script, "trouble")

    assert "one" == first
    assert "message: ValueError: background trouble" in error
    text = "Failed to process the request(s) for model 'streams_0_0', message: ValueError: "
    eventually(lambda: f"{text}background trouble" in server.log_text(), 30, "it is logged")
    assert ["on"] == generate_stream(server, "streams", _SEND, "on")


@pytest.mark.row("A57")
@pytest.mark.parametrize("model", ["plain", "wide", "streams"])
def test_coroutines_ask_other_models_many_times_at_once(server: Server, model: str) -> None:
    script = """
        import asyncio
        echo = "return [reply(text_of(request))]"
        answers = await asyncio.gather(*[ask("echo", echo, str(i)).async_exec() for i in range(50)])
        text = ",".join(map(answer_of, answers))
        request.get_response_sender().send(reply(text), FINAL)
    """
    assert [[",".join(map(str, range(50)))]] * 4 == _all(server, model, script, [""] * 4)


@pytest.mark.row("A54")
@pytest.mark.parametrize("model", ["plain", "wide", "streams"])
def test_a_cancellation_reaches_a_coroutine(server: Server, model: str) -> None:
    script = """
        import asyncio
        print("begun " + text_of(request), flush=True)
        while not request.is_cancelled():
            await asyncio.sleep(0.02)
        print("cancelled " + text_of(request), flush=True)
        request.get_response_sender().send(reply("unread"), FINAL)
    """
    with open_stream(server, model, script, model):
        eventually(lambda: f'begun {model}"' in server.log_text(), 30, "it is executed")

    eventually(lambda: f'cancelled {model}"' in server.log_text(), 30, "it was seen")


@pytest.mark.row("A26", "A27")
def test_the_event_loop_ends_before_finalize(shared: SharedServer) -> None:
    script = """
        import asyncio
        async def background():
            try:
                await asyncio.sleep(3600)
            finally:
                print("stopped", flush=True)
        self.task = asyncio.create_task(background())
        return [reply("on")]
    """
    add_model(shared, "scripted", "ending", ASYNC)
    shared.load("ending")
    assert "on" == generate(shared, "ending", script)

    assert "" == shared.control_model("unload", "ending")

    eventually(lambda: '"finalized ending"' in shared.log_text(), 30, "its end")
    log = shared.log_text()
    assert 0 < log.index('"stopped"') < log.index('"finalized ending"')
