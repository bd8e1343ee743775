"""Real servers whose captures go elsewhere: posted as events, or to a bucket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.server import Server, ask_add_sub
from tests.support.waiting import eventually
from zmqtriton_extras.capture.records import read
from zmqtriton_extras.capture.tests.test_targets import Events, fetch
from zmqtriton_extras.storage.tests.object_store import ObjectStore

pytestmark = pytest.mark.system


def test_requests_are_posted_with_their_answers_and_refusals_cost_none(tmp_path: Path) -> None:
    with Events() as receiver:
        options = ["--capture=*", f"--capture-to={receiver.url}"]
        with Server(tmp_path, ["add_sub"], options=options, frontends=()) as server:
            assert ask_add_sub(server) == 200
            eventually(lambda: len(receiver.posts) == 2, 60)
            request, response = (json.loads(post.body) for post in receiver.posts)
            receiver.status = 500
            assert ask_add_sub(server) == 200
            eventually(lambda: "it answered 500" in server.log_text(), 60)

    assert [tensor["data"] for tensor in request["inputs"]] == [[1.0] * 16] * 2
    assert response["outputs"][0]["data"] == [2.0] * 16
    assert len({post.headers["ce-id"] for post in receiver.posts[:2]}) == 1
    assert "captures are dropped, 1 so far: events cannot be posted" in server.log_text()


@pytest.mark.long(
    "extras/capture/test_targets.py::test_records_of_a_bucket_are_read_like_those_of_a_directory"
)
def test_requests_go_to_a_bucket_before_the_server_has_ended(tmp_path: Path) -> None:
    with ObjectStore() as store:
        url = f"{store.url}/captures"
        options = ["--capture=*", f"--capture-to={url}"]
        variables = store.variables
        with Server(
            tmp_path / "s", ["add_sub"], options=options, environment=variables, frontends=()
        ) as server:
            assert ask_add_sub(server) == 200
            # models do not get what the bucket is written with
            assert "AWS_SECRET_ACCESS_KEY" in server.log_text()
        fetch(store, "captures", tmp_path)

    [record] = read(tmp_path)
    assert (record.model, record.document["error"]) == ("add_sub", None)
