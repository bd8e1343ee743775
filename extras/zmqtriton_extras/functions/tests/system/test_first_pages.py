"""The first pages of other systems, asked in each way; and their export, by Triton itself."""

from __future__ import annotations

import base64
import inspect
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

import zmqtriton
from tests.support.needs import LeftOut, find_tool
from tests.support.server import Server, free_ports
from tests.support.waiting import eventually
from zmqtriton.main import main
from zmqtriton_extras.functions.backend.media import Media
from zmqtriton_extras.functions.tests.first_pages import FOLDER, HISTORY, PAGES, Page

pytestmark = pytest.mark.system

#: Pages that need no package, which the Python of a Triton may lack.
EXPORTED = [each for each in PAGES if "pydantic" not in (FOLDER / f"{each.file}.py").read_text()]
BY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.file)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("--allow-openai",)
    server = Server(tmp_path_factory.mktemp("pages"), options=options, frontends=("grpc",))
    for page in PAGES:
        version = server.repository / page.model / "1"
        version.mkdir(parents=True)
        shutil.copyfile(FOLDER / f"{page.file}.py", version / "model.py")
    with server:
        yield server


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Triton with the exports of pages."""
    script = shutil.which("start_triton.sh")
    if script is None:
        raise LeftOut("no start_triton.sh here, which starts a Triton")
    directory = tmp_path_factory.mktemp("triton")
    repository = directory / "models"
    for page in EXPORTED:
        assert 0 == main(["export", str(FOLDER / f"{page.file}.py"), str(repository)])
    http, grpc, metrics = map(str, free_ports(3))
    environment = {**os.environ, "TRITON_RUN": str(directory / "run")}
    with (directory / "log").open("wb") as log:
        running = subprocess.Popen(
            [script, "run", str(repository), http, grpc, metrics],
            env=environment, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            url = f"http://127.0.0.1:{http}/v2/health/ready"
            eventually(lambda: is_ready(url, running), 120, "Triton")
            yield f"127.0.0.1:{http}"
        finally:
            running.terminate()
            running.wait(60)


def is_ready(url: str, running: subprocess.Popen[bytes]) -> bool:
    assert running.poll() is None
    try:
        with urllib.request.urlopen(url, timeout=10):
            return True
    except (urllib.error.URLError, ConnectionError):
        return False


def value_of(page: Page, document: dict[str, Any]) -> dict[str, Any]:
    """An answer of plain JSON, with the bytes of pictures."""
    return {n: decoded(value) for n, value in document.items()}


def decoded(value: Any) -> Any:
    is_file = isinstance(value, str) and value.startswith("data:")
    return base64.b64decode(value.partition(",")[2]) if is_file else value


def check(page: Page, answer: dict[str, Any]) -> None:
    if page.answer:
        assert page.answer == answer
    else:
        assert b"BM" == answer["output"][:2]


@BY_PAGE
def test_json_and_a_form(server: Server, page: Page, tmp_path: Path) -> None:
    status, document = server.request_json(f"/{page.model}", page.document())
    assert 200 == status, document
    check(page, value_of(page, document))

    words = []
    for name, value in page.arguments.items():
        if type(value) is bytes:
            (tmp_path / name).write_bytes(value)
            words += ["-F", f"{name}=@{tmp_path / name}"]
        else:
            words += [
                "--form-string",
                f"{name}={value if type(value) is str else json.dumps(value)}",
            ]
    command = [find_tool("curl"), "-sS", f"{server.url}/{page.model}", *words]
    printed = subprocess.run(command, capture_output=True, check=True).stdout
    assert document == json.loads(printed)


def asked(client: Any, library: Any, page: Page) -> dict[str, Any]:
    """The answer of a client of tensors: JSON's numbers, texts and lists, and bytes."""
    config = client.get_model_config(page.model)
    config = config if isinstance(config, dict) else config.config
    rows = config["input"] if isinstance(config, dict) else config.input
    has_batches = bool(
        config["max_batch_size"] if isinstance(config, dict) else config.max_batch_size
    )
    inputs = []
    for row in rows:
        name = row["name"] if isinstance(row, dict) else row.name
        if name in page.arguments:
            array = tensor(page.arguments[name], has_batches=has_batches)
            datatype = {"i": "INT64", "f": "FP64", "b": "BOOL"}.get(array.dtype.kind, "BYTES")
            inputs.append(library.InferInput(name, list(array.shape), datatype))
            inputs[-1].set_data_from_numpy(array)
    response = client.infer(page.model, inputs)
    raw = response.get_response()
    outputs = raw["outputs"] if isinstance(raw, dict) else raw.outputs
    names = [each["name"] if isinstance(each, dict) else each.name for each in outputs]
    return {n: plain(response.as_numpy(n), page.answer.get(n, b"")) for n in names}


def tensor(value: Any, *, has_batches: bool) -> Any:
    if isinstance(value, dict) or (isinstance(value, list) and isinstance(value[0], dict)):
        value = json.dumps(value)
    elements = value if isinstance(value, list) else [value]
    kind = np.object_ if isinstance(elements[0], str | bytes) else None
    array = np.array(elements, kind)
    return array[np.newaxis] if has_batches else array


def plain(array: Any, expected: Any) -> Any:
    if isinstance(expected, list) and not isinstance(expected[0], dict):
        return array.tolist()
    item = array.reshape(-1).tolist()[0]
    if isinstance(item, bytes) and not isinstance(expected, bytes):
        return json.loads(item) if isinstance(expected, dict | list) else item.decode()
    return item


@BY_PAGE
def test_tritonclient_over_http_and_grpc(server: Server, page: Page) -> None:
    with http(server.url.removeprefix("http://")) as client:
        check(page, asked(client, http_client, page))
    client = grpc_client.InferenceServerClient(server.grpc_address)
    check(page, asked(client, grpc_client, page))
    client.close()


@contextmanager
def http(address: str) -> Iterator[Any]:
    client = http_client.InferenceServerClient(address)
    yield client
    client.close()


@BY_PAGE
def test_python(server: Server, page: Page, tmp_path: Path) -> None:
    arguments = dict(page.arguments)
    if "image" in arguments:
        (tmp_path / "picture.bmp").write_bytes(arguments["image"])
        arguments["image"] = tmp_path / "picture.bmp"
    with zmqtriton.connect(str(server.pid)) as connection:
        assert page.model in dir(connection)
        assert not hasattr(connection, "nothing")
        function = getattr(connection, page.model)
        assert [*page.arguments] == [*inspect.signature(function).parameters][: len(arguments)]
        with pytest.raises(TypeError, match=r"nothing|required"):
            function(nothing=1)
        answer = function(**arguments)
    rows = answer._asdict() if hasattr(answer, "_asdict") else {"output": answer}
    check(page, {n: v.data if isinstance(v, Media) else as_list(v) for n, v in rows.items()})


def as_list(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def test_a_chat_is_continued_by_openais_client(server: Server) -> None:
    url = f"{server.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", timeout=120, max_retries=0) as client:
        messages: Any = HISTORY
        answer = client.chat.completions.create(model="chat", messages=messages)

    assert "3 messages, the last one: Who are you?" == answer.choices[0].message.content


def test_an_item_that_is_not_there_is_404(server: Server) -> None:
    arguments = {"item_id": -1, "item": {"name": "cup", "price": 1.5}}

    assert (404, {"error": "Item not found"}) == server.request_json("/update_item", arguments)


def test_triton_serves_the_exports_with_the_same_answers(triton: str, server: Server) -> None:
    with http(triton) as theirs, http(server.url.removeprefix("http://")) as ours:
        for page in EXPORTED:
            answer = asked(theirs, http_client, page)
            check(page, answer)
            assert asked(ours, http_client, page) == answer
