"""What `zmqtriton run` prints for models that read messages."""

from __future__ import annotations

import pytest

from zmqtriton.options.parser import parse

guide = pytest.importorskip("zmqtriton_extras.authoring.run").guide

CONFIG = {
    "backend": "functions",
    "parameters": {"openai_messages_input": {"string_value": "messages"}},
}


@pytest.mark.parametrize(
    ("option", "lines"),
    [
        (
            "--allow-openai",
            [
                "curl -sN localhost:8000/v1/chat/completions -d "
                """'{"model": "chat", "messages": [{"role": "user", "content": "hello"}]}'""",
                '# OpenAI\'s client: base_url="http://localhost:8000/v1", model="chat"',
            ],
        ),
        ("--allow-http=true", ["# For OpenAI's clients, start it with --allow-openai"]),
    ],
)
def test_a_chat_says_how_openais_client_calls_it(option: str, lines: list[str]) -> None:
    options = parse(["--model-repository=models", option])

    said = guide("chat", options, 8000, CONFIG)

    assert lines == [line.strip() for line in said.splitlines() if line.startswith("  ")]
