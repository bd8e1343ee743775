"""Answers over OpenAI's protocol are the poem that the transformer was trained on."""

import codecs
import contextlib
import io
from concurrent.futures import ThreadPoolExecutor

with contextlib.redirect_stdout(io.StringIO()):
    import this

POEM = codecs.decode(this.s, "rot13").splitlines()


def test_chats_go_on_with_the_poem(make, serve) -> None:
    make("train.py", "weights.npz")
    server = serve("chat.py", "--allow-openai")

    def go_on(line: str) -> str:
        chat = {"role": "user", "content": line[: len(line) // 2]}
        answer = server.ask(
            "v1/chat/completions", {"model": "chat", "messages": [chat], "max_tokens": 100}
        )
        return line[: len(line) // 2] + answer["choices"][0]["message"]["content"]

    lines = [line for line in POEM[2:] if len(line) > 12]
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(go_on, lines))

    right = sum(line == answer for line, answer in zip(lines, answers, strict=True))
    assert right >= 0.8 * len(lines), answers
