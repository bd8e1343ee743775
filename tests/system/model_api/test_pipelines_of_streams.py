"""Decoupled models that ask others and answer from any thread, and readers that are slow."""

from __future__ import annotations

import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support import scripted
from tests.support.server import Copy, Server

pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(
        models=[
            "scripted",
            *(Copy("scripted", name, scripted.DECOUPLED) for name in ("asking", "streaming")),
        ]
    ),
]

#: Sends COUNT responses of SIZE characters, and sees to it where.
INNER = """
    sender = request.get_response_sender()
    def run():
        for number in range({count}):
            sender.send(reply(str(number) + "x" * {size}))
        sender.send(flags=FINAL)
    {inner}
"""
#: Asks for them, and gives them on.
OUTER = """
import queue, threading, time
inner = {inner!r}
sender = request.get_response_sender()
def stream():
    return ask("streaming", inner).exec(decoupled=True)
def give_on(answer):
    if answer.has_error():
        sender.send(pb_utils.InferenceResponse(error=answer.error()))
    elif answer.output_tensors():
        sender.send(pb_utils.InferenceResponse(answer.output_tensors()))
def end():
    sender.send(flags=FINAL)
def run():
{body}
{outer}
"""
INNERS = {"in execute": "run()", "later": "import threading; threading.Thread(target=run).start()"}
BODIES = {
    "one thread": """
        for answer in stream():
            give_on(answer)
        end()
    """,
    "an iterator for another thread": """
        answers = stream()
        def send():
            for answer in answers:
                give_on(answer)
            end()
        threading.Thread(target=send).start()
    """,
    "a queue to another thread": """
        waiting = queue.Queue(4)
        def send():
            for answer in iter(waiting.get, None):
                give_on(answer)
            end()
        threading.Thread(target=send).start()
        for answer in stream():
            waiting.put(answer)
        waiting.put(None)
    """,
    "a coroutine": """
        import asyncio
        async def send():
            for answer in await ask("streaming", inner).async_exec(decoupled=True):
                give_on(answer)
        asyncio.run(send())
        end()
    """,
}
OUTERS = {
    "execute": "run()",
    "a thread that is joined": (
        "thread = threading.Thread(target=run)\nthread.start()\nthread.join()"
    ),
    "a thread": "threading.Thread(target=run).start()",
}


def _pipeline(count: int, size: int, inner: str, body: str, outer: str) -> str:
    inner_text = textwrap.dedent(INNER.format(count=count, size=size, inner=inner)).strip()
    body = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return OUTER.format(inner=inner_text, body=body, outer=outer)


@pytest.mark.row("A59")
@pytest.mark.parametrize("outer", OUTERS.values(), ids=OUTERS)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_is_asked_for_and_given_on_arrives(server: Server, body: str, outer: str) -> None:
    scripts = {
        (count, size): _pipeline(count, size, inner, body, outer)
        for (count, size), inner in zip(
            ((300, 10), (20, 100_000), (5, 1)), [*INNERS.values(), INNERS["later"]], strict=True
        )
    }

    with ThreadPoolExecutor(len(scripts)) as pool:
        answers = list(
            pool.map(
                lambda script: scripted.generate_stream(server, "asking", script), scripts.values()
            )
        )

    for (count, size), texts in zip(scripts, answers, strict=True):
        assert [str(number) + "x" * size for number in range(count)] == texts


@pytest.mark.row("A59")
def test_a_model_may_take_its_time_with_each_response(server: Server) -> None:
    body = """
        for number, answer in enumerate(stream()):
            if number < 130:
                time.sleep(0.012)
            give_on(answer)
        end()
    """
    script = _pipeline(1600, 1, INNERS["in execute"], body, OUTERS["execute"])

    texts = scripted.generate_stream(server, "asking", script)

    assert [f"{number}x" for number in range(1600)] == texts
