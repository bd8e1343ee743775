"""OpenAI's API, as their own client for Python speaks it, from a real client to the model."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.support.journal import read_journal
from tests.support.needs import Later, find_tool
from tests.support.server import MODELS_DIRECTORY, Server
from tests.support.waiting import eventually
from zmqtriton_extras.authoring.tests.run.test_run import run

if TYPE_CHECKING:
    import openai
else:
    openai = Later("openai")


OPTIONS = ["--allow-openai"]
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=["parrot", "lettering", "string_upper"], options=OPTIONS, frontends=()
    ),
]

HELLO: list[Any] = [
    {"role": "system", "content": "Repeat."},
    {"role": "user", "content": "one two three"},
]


def prepare(server: Server) -> None:
    templated = server.add_model("parrot", "templated")
    (templated / "chat_template.jinja").write_text(TEMPLATE)
    with (templated / "config.pbtxt").open("a") as config:
        config.write(parameter("openai_chat_template_variables", '{\\"bos\\": \\"<s>\\"}'))
    endless = server.add_model("parrot", "endless")
    (endless / "chat_template.jinja").write_text(ENDLESS)
    with (server.repository / "string_upper" / "config.pbtxt").open("a") as config:
        config.write(parameter("openai_text_input", "INPUT0"))
        config.write(parameter("openai_text_output", "OUTPUT0"))
    with (server.add_model("parrot", "messenger") / "config.pbtxt").open("a") as config:
        config.write(parameter("openai_messages_input", "text_input"))


def parameter(name: str, value: str) -> str:
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'


ENDLESS = """
{% for i in range(99999) %}{% for j in range(99999) %}{{ 'a' * 100000 }}{% endfor %}{% endfor %}
"""
#: Its last line is what the model repeats.
TEMPLATE = """
{%- if messages[0].role == "tool" %}{{ raise_exception("no tools here") }}{% endif %}
{% for message in messages %}
<{{ message.role }}>
{% endfor %}
{{ bos }} {{ messages | length }} {{ messages[-1].content | upper }}
"""


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120
    ) as client:
        yield client


def test_a_template_without_an_end_is_its_own_chats_trouble(
    server: Server, client: openai.OpenAI
) -> None:
    client.chat.completions.create(model="templated", messages=HELLO)
    before = _http_mib(server)

    for _ in range(2):
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=1.0).chat.completions.create(
                model="endless", messages=HELLO
            )
        client.chat.completions.create(model="templated", messages=HELLO)

    assert _http_mib(server) < before + 64
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="endless", messages=HELLO)
    assert "the chat template of model 'endless' takes" in caught.value.message


def _http_mib(server: Server) -> int:
    return sum(psutil.Process(pid).memory_info().rss for pid in server.pids()["http"]) >> 20


def test_the_server_names_it_among_its_extensions(server: Server) -> None:
    with urllib.request.urlopen(f"{server.url}/v2") as answer:
        assert "openai" in json.load(answer)["extensions"]


def tokens(usage: Any) -> tuple[int, int, int]:
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


@pytest.mark.row("L08")
def test_a_chat_is_answered(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="parrot", messages=HELLO)

    assert (answer.object, answer.model) == ("chat.completion", "parrot")
    assert answer.id.startswith("chatcmpl-")
    (choice,) = answer.choices
    assert (choice.index, choice.finish_reason) == (0, "stop")
    assert (choice.message.role, choice.message.content) == ("assistant", "one two three")
    assert tokens(answer.usage) == (7, 3, 10)


@pytest.mark.row("L08")
def test_a_chat_is_streamed(client: openai.OpenAI) -> None:
    with client.chat.completions.create(
        model="parrot", messages=HELLO, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)

    *first, last = chunks
    assert "".join(c.choices[0].delta.content or "" for c in first) == "one two three"
    # word by word, between who speaks and why it ends
    assert first[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in first] == [None] * 4 + ["stop"]
    assert {None} == {c.usage for c in first}
    assert (last.choices, tokens(last.usage)) == ([], (7, 3, 10))
    assert len({(c.id, c.created, c.object) for c in chunks}) == 1


@pytest.mark.row("L08")
def test_a_chat_becomes_a_prompt_by_the_model_s_template(client: openai.OpenAI) -> None:
    parts: Any = [{"role": "user", "content": [{"type": "text", "text": "in parts"}]}]

    answers = [
        client.chat.completions.create(model="templated", messages=messages)
        for messages in (HELLO, parts)
    ]
    with pytest.raises(openai.BadRequestError, match="no tools here"):
        client.chat.completions.create(
            model="templated", messages=[{"role": "tool", "content": "", "tool_call_id": "1"}]
        )

    texts = [answer.choices[0].message.content for answer in answers]
    assert texts == ["<s> 2 ONE TWO THREE", "<s> 1 IN PARTS"]


@pytest.mark.row("L08")
def test_a_model_may_take_the_messages_of_a_chat_themselves(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="messenger", messages=HELLO)

    assert json.loads(answer.choices[0].message.content or "") == HELLO


@pytest.mark.row("L08")
def test_texts_are_continued_with_several_choices(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="parrot", prompt=["one two", "three four five"], n=2, max_tokens=2, echo=True
    )

    assert [(c.index, c.text, c.finish_reason) for c in answer.choices] == [
        (0, "one twoone two", "stop"),
        (1, "one twoone two", "stop"),
        (2, "three four fivethree four", "length"),
        (3, "three four fivethree four", "length"),
    ]
    assert tokens(answer.usage) == (5, 8, 13)


@pytest.mark.row("L08")
def test_continued_texts_are_streamed(client: openai.OpenAI) -> None:
    texts = ["", "", "", ""]
    with client.completions.create(
        model="parrot", prompt=["one two", "three"], n=2, stream=True, echo=True
    ) as stream:
        for chunk in stream:
            assert chunk.usage is None
            for choice in chunk.choices:
                texts[choice.index] += choice.text

    assert texts == ["one twoone two", "one twoone two", "threethree", "threethree"]


@pytest.mark.row("L08")
def test_a_coroutine_is_answered(server: Server) -> None:
    async def ask() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120
        ) as client:
            stream = await client.chat.completions.create(
                model="parrot", messages=HELLO, stream=True
            )
            streamed = [chunk.choices[0].delta.content or "" async for chunk in stream]
            whole = await client.chat.completions.create(model="parrot", messages=HELLO)
        return ["".join(streamed), whole.choices[0].message.content or ""]

    assert asyncio.run(ask()) == ["one two three"] * 2


@pytest.mark.row("L08")
def test_a_client_that_leaves_a_stream_is_known_to_the_model(
    client: openai.OpenAI, server: Server
) -> None:
    with client.chat.completions.create(
        model="parrot", messages=[{"role": "user", "content": "FOREVER"}], stream=True
    ) as stream:
        own_id = next(iter(stream)).id

    eventually(lambda: ("cancelled", own_id) in journal(server), 60, "the model sees it")


@pytest.mark.row("L08")
def test_a_client_that_does_not_wait_is_known_to_the_model(server: Server) -> None:
    before = len(journal(server))
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/completions", '{"model": "parrot", "prompt": "FOREVER"}')
        begun = eventually(lambda: [r for r in journal(server)[before:] if r[0] == "endless"], 60)
    own_id = begun[-1][1]

    eventually(lambda: ("cancelled", own_id) in journal(server), 60, "the model sees it")


@pytest.mark.row("L08", "L18")
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_deadline_ends_an_answer(
    client: openai.OpenAI, server: Server, is_streamed: bool
) -> None:
    before = len(journal(server))
    with pytest.raises(openai.APIError, match="Deadline Exceeded: model 'parrot'") as error:
        for _ in client.completions.create(
            model="parrot",
            prompt="FOREVER",
            stream=is_streamed,
            extra_headers={"X-Request-Timeout": "2"},
        ):
            pass

    assert is_streamed or getattr(error.value, "status_code", 0) == 504
    eventually(
        lambda: "cancelled" in {event for event, _ in journal(server)[before:]},
        60,
        "the model sees it",
    )


def journal(server: Server) -> list[tuple[str, str]]:
    return [(record.event, record.id) for record in read_journal(server.journal)]


@pytest.mark.row("L08")
def test_texts_become_vectors(client: openai.OpenAI) -> None:
    words = ["banana", "queue", "rhythm", "iota", "aeiou", "moon"]
    expected = [[word.count(vowel) for vowel in "aeiou"] for word in words]

    # the client asks for base64 unless it is told otherwise
    packed = client.embeddings.create(model="lettering", input=words)
    plain = client.embeddings.create(model="lettering", input=words, encoding_format="float")
    one = client.embeddings.create(model="lettering", input="banana")

    assert expected == [vector.embedding for vector in packed.data]
    assert expected == [vector.embedding for vector in plain.data]
    assert list(range(6)) == [vector.index for vector in plain.data]
    assert expected[:1] == [vector.embedding for vector in one.data]
    # two tokens for six letters are an estimate
    assert (one.usage.prompt_tokens, one.usage.total_tokens) == (2, 2)


@pytest.mark.row("L08")
def test_embeddings_that_cannot_be_made_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="'parrot' makes no embeddings"):
        client.embeddings.create(model="parrot", input="one")
    with pytest.raises(openai.BadRequestError, match="'lettering' makes no text"):
        client.completions.create(model="lettering", prompt="one")
    with pytest.raises(openai.BadRequestError, match="more than 2048"):
        client.embeddings.create(model="lettering", input=["x"] * 2049)
    with pytest.raises(openai.InternalServerError, match="no vowels"):
        client.embeddings.create(model="lettering", input=["x"] * 100 + ["FAIL"])


@pytest.mark.row("L08")
def test_a_model_that_answers_once_has_streams_of_one_piece(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="string_upper", messages=HELLO)
    with client.completions.create(model="string_upper", prompt="one", stream=True) as stream:
        streamed = [chunk.choices[0].text for chunk in stream]

    # what a chat is without a template
    expected = "SYSTEM: REPEAT.\nUSER: ONE TWO THREE\nASSISTANT:"
    assert expected == answer.choices[0].message.content
    assert streamed == ["ONE", ""]


@pytest.mark.row("L08")
def test_long_texts_are_continued(client: openai.OpenAI) -> None:
    text = "é😀" * 100_000

    answer = client.completions.create(model="parrot", prompt=text)
    with client.completions.create(model="parrot", prompt=text, stream=True) as stream:
        streamed = [chunk.choices[0].text for chunk in stream]

    assert text == answer.choices[0].text
    assert [text, ""] == streamed


@pytest.mark.row("L08")
def test_requests_are_counted_as_others_are(client: openai.OpenAI, server: Server) -> None:
    before = counts(server)

    client.completions.create(model="templated", prompt=["one", "two"])
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="templated", prompt="FAIL")

    after = counts(server)
    assert (after[0] - before[0], after[1] - before[1]) == (2, 1)


def counts(server: Server) -> tuple[int, int]:
    """Return the successes and failures of a model that no test leaves at work."""
    with urllib.request.urlopen(f"{server.url}/v2/models/templated/stats", timeout=60) as answer:
        counts = json.load(answer)["model_stats"][0]["inference_stats"]
    return counts["success"]["count"], counts["fail"]["count"]


@pytest.mark.row("L08")
def test_the_models_that_serve_are_listed(client: openai.OpenAI) -> None:
    models = client.models.list().data

    expected = ["endless", "lettering", "messenger", "parrot", "string_upper", "templated"]
    assert expected == [model.id for model in models]
    assert models[3] == client.models.retrieve("parrot")
    assert 0 < models[0].created <= time.time()
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")


@pytest.mark.row("L08")
def test_sampling_parameters_reach_the_model(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="parrot",
        prompt="SAMPLING",
        temperature=0,
        seed=-7,
        stop="end",
        user="me",
        extra_body={"top_k": 3, "max_completion_tokens": 20},
    )

    sampling = json.loads(answer.choices[0].text)
    assert sampling.pop("temperature") == 0
    assert sampling == {"seed": -7, "stop": ["end"], "top_k": 3, "max_tokens": 20}


@pytest.mark.row("L08")
def test_errors_are_openai_s(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.completions.create(model="nobody", prompt="one")
    with pytest.raises(openai.BadRequestError) as wrong:
        client.completions.create(model="parrot", prompt="one", n=129)
    with pytest.raises(openai.BadRequestError) as before:
        client.completions.create(model="parrot", prompt="FAIL", stream=True)
    chunks: list[Any] = []
    stream = client.completions.create(model="parrot", prompt="one FAIL", stream=True)
    with pytest.raises(openai.APIError) as amid:
        collect(stream, chunks)

    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    assert (wrong.value.type, wrong.value.param) == ("invalid_request_error", "n")
    assert "the word is FAIL" in before.value.message
    assert [chunk.choices[0].text for chunk in chunks] == ["one"]
    assert amid.value.message == "the word is FAIL"


def collect(stream: Any, chunks: list[Any]) -> None:
    for chunk in stream:
        chunks.append(chunk)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"model": "parrot"}',
        b'{"model": 7, "prompt": "one"}',
        b'{"model": "parrot", "prompt": [1, 2]}',
        b'{"model": "parrot", "prompt": "\xff"}',
        b'{"model": "parrot", "prompt": "one", "n": 1e300}',
        b'{"model": "parrot", "prompt": "one", "stop": {"a": 1}}',
        b'{"model": "parrot", "prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
@pytest.mark.row("L08")
def test_what_is_no_request_is_refused(server: Server, body: bytes) -> None:
    request = urllib.request.Request(f"{server.url}/v1/completions", body, method="POST")

    with pytest.raises(urllib.error.HTTPError) as refused, urllib.request.urlopen(request):
        pass

    with refused.value as answer:
        error = json.loads(answer.read())["error"]
    assert refused.value.code == 400
    assert {"message", "type", "param", "code"} == error.keys()
    assert error["type"] == "invalid_request_error"


def test_the_chat_that_run_prints_can_be_typed(tmp_path: Path) -> None:
    find_tool("curl")
    shutil.copytree(MODELS_DIRECTORY / "parrot", tmp_path / "parrot")
    config = tmp_path / "parrot" / "config.pbtxt"
    own = parameter("openai_messages_input", "text_input")
    config.write_text(config.read_text().replace("@SCRATCH@", str(tmp_path)) + own)
    with run(tmp_path, "parrot", *OPTIONS) as running:
        [line] = re.findall(r"^  (curl .*)$", running.text, re.MULTILINE)
        answer = subprocess.run(line, shell=True, stdout=subprocess.PIPE, check=True).stdout

    assert "/v1/chat/completions" in line
    assert "hello" in json.loads(answer)["choices"][0]["message"]["content"]
