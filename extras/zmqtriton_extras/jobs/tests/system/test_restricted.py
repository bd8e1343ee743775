"""Jobs of a server whose inferences need a key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.jobs.tests.asking import ENDS, add_journal, ask, journal_body

pytestmark = pytest.mark.system

_KEY = "a-key-that-is-on-no-disk"


def test_a_key_of_a_restricted_api_admits_a_job_and_is_not_on_disk(tmp_path: Path) -> None:
    state = tmp_path / "jobs"
    options = ["--jobs", f"--state-directory={state}"]
    options.append(f"--http-restricted-api=inference:X-Admin-Key={_KEY}")
    server = Server(tmp_path / "s", options=options, frontends=())
    add_journal(server)
    path, key = "/v2/models/journal/infer", {"x-admin-key": _KEY}
    with server:
        refused = ask(server, path, journal_body("refused"), {"prefer": "respond-async"})
        headers = {"prefer": "respond-async", "x-kept": "this-one-is-kept", **key}
        kept = ask(server, path, journal_body("one"), headers)
        own_id = kept.document["id"]
        place = f"/v2/jobs/{own_id}"
        eventually(lambda: ask(server, place, headers=key).document["state"] in ENDS, 60)
        outcome = ask(server, place, headers=key).document
        files = b"".join(each.read_bytes() for each in state.rglob("*") if each.is_file())

    assert (refused.status, kept.status, outcome["state"]) == (403, 202, "succeeded")
    assert b"this-one-is-kept" in files
    assert _KEY.encode() not in files
