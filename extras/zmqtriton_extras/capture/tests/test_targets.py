"""Records that go elsewhere: posted as CloudEvents, or written to a bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pytest

from tests.support.receivers.post_receiver import PostReceiver
from tests.support.waiting import eventually
from zmqtriton_extras.capture.process.assembly import Budget, Capture
from zmqtriton_extras.capture.process.events import Posted
from zmqtriton_extras.capture.process.writer import Target, Writer
from zmqtriton_extras.capture.records import read
from zmqtriton_extras.capture.tests.test_segments import capture, tensor
from zmqtriton_extras.storage.tests.blob_servers import AzureBlobs, GoogleBlobs
from zmqtriton_extras.storage.tests.object_store import ObjectStore


class Post(NamedTuple):
    headers: dict[str, str]
    body: bytes


class Events(PostReceiver):
    def __init__(self, status: int = 200) -> None:
        super().__init__("/events")
        self.posts: list[Post] = []
        self.status = status

    def take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        self.posts.append(Post(headers, body))
        return self.status, b""


class Place(Protocol):
    """A stand-in for a store."""

    url: str
    variables: dict[str, str]

    def contents(self, folder: str, /) -> dict[str, bytes]: ...


X = tensor("X", "INT32", np.array([[1, 2]], np.int32))


def written(target: Target, *captures: Capture) -> Writer:
    writer = Writer(target, Budget(1 << 20))
    for one in captures:
        writer.write([one])
    writer.end()
    eventually(lambda: writer.has_ended, 60)
    return writer


def test_a_record_is_an_event_of_its_request_and_one_of_each_response() -> None:
    with Events() as receiver:
        large = tensor("H", "FP16", np.array([1.5], np.float16))
        hashed = tensor("S", "BYTES", np.array([b"secret"], object))
        one = capture(X, large, hashed, hashed=["S"], omitted=["PHOTO"])
        writer = written(Posted(receiver.url), one)

        assert (writer.written, writer.failed) == ({"m": 1}, {})
        request, response = receiver.posts
        kind = "org.kubeflow.serving.inference."
        assert [f"{kind}request", f"{kind}response"] == [
            post.headers["ce-type"] for post in (request, response)
        ]
        for post in (request, response):
            assert (
                post.headers["ce-specversion"],
                post.headers["ce-inferenceservicename"],
            ) == ("1.0", "m")
            assert post.headers["ce-source"].endswith("/v2/models/m/versions/2")
            assert request.headers["ce-id"] == post.headers["ce-id"]
        length = int(request.headers["inference-header-content-length"])
        document = json.loads(request.body[:length])
        assert document["id"] == "r"
        x, h, s = document["inputs"]
        assert (x["data"], h["parameters"]) == ([1, 2], {"binary_data_size": 2})
        assert np.float16(1.5).tobytes() == request.body[length:]
        assert ({"name", "datatype", "shape", "parameters"}, {"hash"}) == (
            set(s),
            set(s["parameters"]),
        )
        answer = json.loads(response.body)
        assert response.headers["content-type"] == "application/json"
        assert (
            answer["model_name"],
            answer["model_version"],
            answer["outputs"][0]["data"],
        ) == ("m", "2", [1.0, 1.0])


def test_an_error_is_the_event_of_the_response() -> None:
    one = capture(X)
    failed = one._replace(responses=[], end={**one.end, "error": ["INTERNAL", "it broke"]})
    with Events() as receiver:
        written(Posted(receiver.url), failed)

        assert json.loads(receiver.posts[-1].body)["error"] == "it broke"


def test_records_that_are_refused_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    with Events(status=403) as receiver:
        writer = written(Posted(receiver.url), capture(X), capture(X))

    assert (writer.written, writer.failed) == ({}, {"m": 2})
    assert "captures are dropped, 1 so far: events cannot be posted: it answered 403" in caplog.text


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["s3", "gs", "as"])
def test_records_of_a_bucket_are_read_like_those_of_a_directory(
    store: ObjectStore, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zmqtriton_extras.capture.process.buckets import Bucket

    large = tensor("X", "FP32", np.arange(5000, dtype=np.float32))
    with AzureBlobs() as azure, GoogleBlobs() as google:
        places: dict[str, Place] = {"s3": store, "gs": google, "as": azure}
        of_kind = places[kind]
        for name, value in of_kind.variables.items():
            monkeypatch.setenv(name, value)

        writer = written(Bucket(f"{of_kind.url}/a-folder"), capture(X), capture(large))

        assert (writer.written, writer.failed) == ({"m": 2}, {})
        fetch(of_kind, "a-folder", tmp_path)
    small, record = read(tmp_path)
    assert small.array(small.document["request"]["inputs"][0]).tolist() == [[1, 2]]
    assert (
        np.arange(5000).tolist() == record.array(record.document["request"]["inputs"][0]).tolist()
    )


@pytest.mark.slow
def test_a_bucket_that_is_missing_costs_records_and_is_named(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from zmqtriton_extras.capture.process.buckets import Bucket

    for name, value in store.variables.items():
        monkeypatch.setenv(name, value)

    writer = written(Bucket(f"s3://{store.server}/nobucket"), capture(X))

    assert (writer.written, writer.failed) == ({}, {"m": 1})
    assert f"s3://{store.server}/nobucket cannot be written at " in caplog.text


def fetch(store: Place, folder: str, directory: Path) -> None:
    """Copy a folder of a bucket."""
    for name, content in store.contents(folder).items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
