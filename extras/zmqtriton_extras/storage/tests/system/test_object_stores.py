"""Models of object stores, served by a real server out of moto's S3."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from tests.support.clients import infer_inputs
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.storage.tests.object_store import ObjectStore, held_after_first_piece
from zmqtriton_floor import wire
from zmqtriton_floor.lifeline import Lifeline, pair

pytestmark = pytest.mark.system

CONFIG = """
backend: "python"
max_batch_size: 0
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 3 ] } ]
"""
#: Answers what it says, where it is, and who runs it.
MODEL = """
import os, sys
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.place = args["model_repository"]
        with open(os.path.join(self.place, "1", "weights")) as file:
            self.size = len(file.read())

    def execute(self, requests):
        texts = [{says!r}, self.place, sys.executable]
        found = pb_utils.Tensor("OUT", np.array(texts, dtype=np.object_))
        return [pb_utils.InferenceResponse([found]) for _ in requests]
"""
#: An environment as far as a server looks, with the packages of the tests.
PYTHON = f"""#!/bin/sh
exec {sys.executable} "$@"
"""
IN_ENVIRONMENT = """
parameters {{
  key: "EXECUTION_ENV_PATH"
  value {{ string_value: "$$TRITON_MODEL_DIRECTORY/{}" }}
}}
"""


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as running:
        yield running


def put(store: ObjectStore, folder: str, model: str, says: str) -> None:
    store.put(f"{folder}/{model}/1/weights", "x" * 100_000)
    store.put(f"{folder}/{model}/1/model.py", MODEL.format(says=says))
    store.put(f"{folder}/{model}/config.pbtxt", CONFIG)


def ask(server: Server, model: str) -> list[str]:
    """Return what the model says, and where it is."""
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        [tensor] = infer_inputs(http_client, IN=np.array([1], np.int32))
        texts: Any = client.infer(model, [tensor]).as_numpy("OUT")
    return [text.decode() for text in texts]


def index(server: Server) -> dict[str, str]:
    """By name: the state, with the reason."""
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        entries: Any = client.get_model_repository_index()
    return {
        entry["name"]: f"{entry.get('state', '')} {entry.get('reason', '')}".strip()
        for entry in entries
    }


@pytest.fixture(scope="module")
def polling(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("polling")
    (directory / "copies").mkdir()
    for model in ("first", "changing", "leaving", "odd", "clash"):
        put(store, "polled", model, "before")
    store.put("polled/odd/../../outside", "x")
    store.put("polled/clash/1/model.py/inner", "x")
    options = [
        f"--model-repository={store.url}/polled",
        "--model-control-mode=poll",
        "--repository-poll-secs=1",
        "--exit-on-error=false",
        "--strict-readiness=false",
    ]
    folder = {"TRITON_AWS_MOUNT_DIRECTORY": str(directory / "copies")}
    server = Server(
        directory / "s",
        models=["identity_fp32"],
        options=options,
        environment={**store.variables, **folder},
        frontends=(),
    )
    with server:
        yield server
    assert list((directory / "copies").iterdir()) == []


@pytest.mark.smoke
@pytest.mark.row("F21")
def test_models_of_a_bucket_are_served_beside_others_and_only_what_changes_is_fetched(
    store: ObjectStore, polling: Server
) -> None:
    # Given models of a bucket, some of them odd, and one of a directory
    says, place, _ = ask(polling, "first")

    assert ("before", "first") == (says, Path(place).name)
    states = index(polling)
    assert {"changing", "first", "identity_fp32", "leaving"} == {
        name for name, state in states.items() if state == "READY"
    }
    assert "cannot be a path" in states["odd"]
    assert "is both a file and a folder" in states["clash"]
    before, leaving = (Path(ask(polling, model)[1]) for model in ("changing", "leaving"))
    weights = (before / "1" / "weights").stat().st_ino

    # When some of them change
    store.put("polled/changing/1/model.py", MODEL.format(says="after"))
    store.delete(*(f"polled/leaving/{n}" for n in ("config.pbtxt", "1/model.py", "1/weights")))
    store.delete("polled/odd/../../outside", "polled/clash/1/model.py/inner")

    # Then the server has what has changed, and fetches nothing else
    eventually(lambda: ask(polling, "changing")[0] == "after", 60)
    after = Path(ask(polling, "changing")[1])
    assert (True, weights) == (before != after, (after / "1" / "weights").stat().st_ino)
    eventually(lambda: not before.exists() and not leaving.exists(), 60, "old copies are gone")
    expected = dict.fromkeys(("changing", "clash", "first", "identity_fp32", "odd"), "READY")
    eventually(lambda: index(polling) == expected, 60, str(index(polling)))


@pytest.fixture
def explicit(store: ObjectStore, tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "copies").mkdir()
    options = [
        f"--model-repository=s3://http://{store.server}/{store.bucket}/explicit",
        "--model-repository=s3://127.0.0.1:1/nobody/there",
        "--model-control-mode=explicit",
        "--exit-on-error=false",
    ]
    folder = {"TRITON_AWS_MOUNT_DIRECTORY": str(tmp_path / "copies")}
    variables = {**store.variables, **folder}
    with Server(tmp_path / "s", options=options, environment=variables, frontends=()) as server:
        yield server


def control(server: Server, verb: str, model: str) -> str:
    """The error, or "" if all is well."""
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        try:
            getattr(client, f"{verb}_model")(model)
        except InferenceServerException as error:
            return str(error)
    return ""


def packed(name: str, content: str) -> bytes:
    """An archive with an environment."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for path, text, mode in (("bin/activate", "", 0o644), (name, content, 0o755)):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text), mode
            tar.addfile(entry, io.BytesIO(text.encode()))
    return archive.getvalue()


@pytest.mark.row("B10", "F21")
def test_models_of_a_bucket_are_loaded_unloaded_and_bring_their_environment(
    store: ObjectStore, explicit: Server, tmp_path: Path
) -> None:
    put(store, "explicit", "loose", "loose")
    store.put("explicit/loose/config.pbtxt", CONFIG + IN_ENVIRONMENT.format("python_env"))
    store.put("explicit/loose/python_env/bin/activate", "")
    store.put("explicit/loose/python_env/bin/python", PYTHON)
    put(store, "explicit", "packed", "packed")
    store.put("explicit/packed/config.pbtxt", CONFIG + IN_ENVIRONMENT.format("env.tar.gz"))
    store.put("explicit/packed/env.tar.gz", packed("bin/python", PYTHON))

    assert ["", "", ""] == [control(explicit, "load", m) for m in ("loose", "packed", "loose")]

    place = Path(ask(explicit, "loose")[1])
    assert "packed" == ask(explicit, "packed")[0]
    text = explicit.log_text()
    assert f"Using Python execution env {place}/python_env" in text
    assert "/packed/env.tar.gz" in text
    assert 1 == text.count("successfully loaded 'loose'")
    # One of the repositories cannot be reached, which is said, and costs the others nothing.
    assert "s3://127.0.0.1:1/nobody/there cannot be listed" in text
    assert "s3://127.0.0.1:1/nobody/there cannot be listed" in control(explicit, "load", "third")

    control(explicit, "unload", "loose")
    eventually(lambda: not place.exists(), 60, "the copy of what is unloaded is gone")

    explicit.kill()
    eventually(lambda: list((tmp_path / "copies").iterdir()) == [], 60, "nothing is left")


@pytest.mark.long(
    "extras/storage/test_object_stores.py::test_a_copy_says_how_far_it_is_until_it_ends"
)
@pytest.mark.row("F21")
def test_the_status_shows_how_far_a_copy_is(store: ObjectStore, tmp_path: Path) -> None:
    # Given a model of two pieces, of which the store has given one
    put(store, "large", "m", "x")
    store.put("large/m/1/weights", bytes(12 << 20))
    (tmp_path / "copies").mkdir()
    may_go_on = threading.Event()
    with held_after_first_piece(store, may_go_on) as address:
        server = Server(
            tmp_path / "s",
            options=[
                f"--model-repository=s3://http://{address}/{store.bucket}/large",
                "--model-control-mode=explicit",
            ],
            environment={**store.variables, "TRITON_AWS_MOUNT_DIRECTORY": str(tmp_path / "copies")},
            frontends=(),
        )
        with server, ThreadPoolExecutor(1) as pool:
            load = pool.submit(control, server, "load", "m")

            # When its state is asked for
            def copying() -> list[dict[str, Any]]:
                with urllib.request.urlopen(f"{server.url}/v2/zmqtriton/status") as answer:
                    rows: list[dict[str, Any]] = json.load(answer)["environments"]
                return [row for row in rows if row["progress"]]

            try:
                [row] = eventually(copying, 60, "a piece is there")
            finally:
                may_go_on.set()

            # Then the step and its share are there until it is loaded
            assert ("m", True) == (row["model"], row["step"].startswith("Copying s3://"))
            assert 0.5 < row["progress"] < 1.0
            assert "" == load.result(60)
            assert [] == copying()


@pytest.mark.long(
    "extras/storage/system/test_object_stores.py::test_models_of_a_bucket_are_loaded_unloaded_and_bring_their_environment"
)
@pytest.mark.row("F21")
def test_a_bucket_of_google_is_listed_and_copied_likewise(
    store: ObjectStore, tmp_path: Path
) -> None:
    """By the process that a server would ask; what it speaks to is moto."""
    put(store, "google", "m", "x")
    urls = [f"gs://{store.bucket}/google"]
    (tmp_path / "copies").mkdir()
    ours, theirs = pair()
    process = subprocess.Popen(
        [sys.executable, "-m", "zmqtriton_extras.storage", "--lifeline", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env={**os.environ, "STORAGE_EMULATOR_HOST": store.server},
    )
    theirs.close()
    line = Lifeline(ours)

    def ask(verb: str, **arguments: Any) -> Any:
        line.send(wire.Call(1, verb, json.dumps({"revisions": {}, **arguments})))
        answers: list[wire.CallResult] = []
        while not answers:
            assert line.wait(30)
            answers = [said for said, _ in line.receive() if isinstance(said, wire.CallResult)]
        (answer,) = answers
        return json.loads(answer.result)["result"] if not answer.code else answer.text

    try:
        (names, missing) = ask("names", urls=[*urls, "gs://nobucket/models"])
        copies = str(tmp_path / "copies")
        copied = ask("copy", model="m", urls=urls, directory=copies, is_patient=False)
    finally:
        line.close()

    assert {"m": copied["digest"]} == names["models"]
    assert 100_000 == (Path(copied["directory"]) / "1" / "weights").stat().st_size
    assert missing["error"].startswith("gs://nobucket/models cannot be listed: NoSuchBucket")
    assert 0 == process.wait(20)


class _Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<Error><Code>InvalidAccessKeyId</Code><Message>No such key.</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Not on the tests' output."""


@pytest.mark.row("F21")
def test_a_server_whose_only_bucket_refuses_it_says_so_and_ends(tmp_path: Path) -> None:
    refusing = HTTPServer(("127.0.0.1", 0), _Refusing)
    thread = threading.Thread(target=refusing.serve_forever)
    thread.start()
    url = f"s3://127.0.0.1:{refusing.server_port}/bucket"
    secret = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "a secret"}
    server = Server(
        tmp_path / "s", options=[f"--model-repository={url}"], environment=secret, frontends=()
    )

    try:
        server.launch()
        eventually(lambda: server.returncode is not None, 60)
    finally:
        refusing.shutdown()
        thread.join()
        refusing.server_close()

    why = f"{url} cannot be listed: InvalidAccessKeyId: No such key.; check URL and rights"
    assert 1 == server.returncode
    assert f"error: creating server: Internal - {why}" in server.log_text()
    assert "a secret" not in server.log_text()
