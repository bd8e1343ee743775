"""The way to the process of jobs, where that dies amid a question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from zmqtriton_addons.jobs import messages
from zmqtriton_addons.jobs.channel import Channel
from zmqtriton_addons.jobs.messages import Document


class Process:
    """Answers on its socket, or dies after so many questions."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.questions: list[Document] = []
        self.dies = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            try:
                document, size = await messages.read_head(reader)
                await messages.Body(reader, size).drop()
            except EOFError:
                break
            self.questions.append(document)
            if self.dies:
                self.dies -= 1
                break
            await messages.write(writer, {"number": len(self.questions)})
        writer.close()


def run(path: Path, test: Callable[[Process, Channel], Coroutine[Any, Any, None]]) -> None:
    async def all_of_it() -> None:
        process = Process(path)
        async with await asyncio.start_unix_server(process.serve, process.path):
            channel = Channel(process.path)
            await asyncio.wait_for(test(process, channel), 20)
            for _, writer in channel._idle:
                writer.close()
                await writer.wait_closed()

    asyncio.run(all_of_it())


def test_a_question_is_asked_again_if_the_process_dies(tmp_path: Path) -> None:
    async def test(process: Process, channel: Channel) -> None:
        assert 1 == (await channel.ask({"verb": "show"})).document["number"]
        process.dies = 2

        answer = await channel.ask({"verb": "submit", "id": "1"}, [b"body"])

        assert 4 == answer.document["number"]
        assert [{"verb": "submit", "id": "1"}] * 3 == process.questions[1:]

    run(tmp_path / "socket", test)
