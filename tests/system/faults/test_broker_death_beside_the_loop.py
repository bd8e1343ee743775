"""The broker dies while the loop's thread of a model waits for a thread, or a fork, of its own."""

from __future__ import annotations

import json
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import scripted
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

KILLS = 5
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            *(Copy("scripted", name) for name in ("asking", "callee")),
            *(Copy("scripted", name, scripted.DECOUPLED) for name in ("streaming", "sending")),
        ],
        frontends=(),
        own=True,
    ),
]

#: Shows that the caller has its first response, and sends the next one when it may.
STREAM = """
    import os, time
    sender, path = request.get_response_sender(), text_of(request)
    sender.send(reply("first"))
    while not os.path.exists(path):
        time.sleep(0.005)
    sender.send(reply("through"), flags=FINAL)
"""


def _quoted(script: str) -> str:
    return repr(textwrap.dedent(script).strip())


CALLS = f"""
import asyncio, os, threading
from concurrent.futures import ThreadPoolExecutor

def to_callee():
    return ask("callee", {_quoted(scripted.GATE)}, text_of(request))

def call():
    return answer_of(to_callee().exec())

async def call_async():
    calls = [to_callee().async_exec() for _ in range(2)]
    return [answer_of(one) for one in await asyncio.gather(*calls)][1]

def read_stream():
    texts = []
    stream = ask("streaming", {_quoted(STREAM)}, text_of(request))
    for response in stream.exec(decoupled=True):
        if response.output_tensors():
            texts.append(answer_of(response))
            open(text_of(request) + ".begun", "w").close()
    return texts[-1]

def in_thread(act):
    texts = []
    thread = threading.Thread(target=lambda: texts.append(act()))
    thread.start()
    thread.join()
    return [reply(texts[0])]
"""
#: Each waits without a look at anything of the server's.
WAYS = {
    "a thread": "return in_thread(call)",
    "a pool": """
with ThreadPoolExecutor(3) as pool:
    texts = list(pool.map(lambda _: call(), range(3)))
return [reply(texts[0] if len(set(texts)) == 1 else texts)]
""",
    "an event loop in a thread": "return in_thread(lambda: asyncio.run(call_async()))",
    "a stream in a thread": "return in_thread(read_stream)",
    "a fork": """
reading, writing = os.pipe()
child = os.fork()
if not child:
    os.write(writing, call().encode())
    os._exit(0)
os.close(writing)
os.waitpid(child, 0)
return [reply(os.read(reading, 1000).decode())]
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_call_is_answered_though_the_broker_was_killed(
    server: Server, tmp_path: Path, way: str
) -> None:
    with ThreadPoolExecutor() as threads:
        for kill in range(KILLS):
            gate = tmp_path / str(kill)
            answer = threads.submit(
                scripted.generate, server, "asking", CALLS + WAYS[way], str(gate)
            )
            eventually(Path(f"{gate}.begun").exists, 60, "the call")

            server.kill_only("broker")
            gate.touch()

            assert "through" == answer.result(60)


def test_a_thread_that_sends_goes_on_with_the_next_broker(server: Server) -> None:
    count = 2500  # more than is kept for a reader
    script = f"""
        import threading, time
        sender = request.get_response_sender()
        def send():
            for number in range({count}):
                time.sleep(0.001)
                sender.send(reply(number))
            sender.send(flags=FINAL)
        thread = threading.Thread(target=send)
        thread.start()
        thread.join()
    """
    texts = []
    with scripted.open_stream(server, "sending", script) as connection:
        for line in filter(bytes.strip, connection.getresponse()):
            texts.append(json.loads(line.removeprefix(b"data: "))["TEXT"])
            if len(texts) == 50:
                server.kill_only("broker")

    assert list(map(str, range(count))) == texts
