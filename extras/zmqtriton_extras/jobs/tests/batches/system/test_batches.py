"""Files and batches on a real server, as OpenAI's own client for Python has them."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.standard.ctl.system.commands import OPTION, ctl
from tests.support.journal import read_journal
from tests.support.needs import Later, find_tool
from tests.support.server import Server
from zmqtriton_extras.jobs.tests.asking import ask, soon
from zmqtriton_extras.jobs.tests.batches.requests import CHAT, line, text_of
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import ALL_MODELS, Grant

if TYPE_CHECKING:
    import openai
    from openai.types import Batch
else:
    openai = Later("openai")

pytestmark = pytest.mark.system

OPTIONS = ("--jobs", "--allow-openai")
ENDS = ("completed", "failed", "expired", "cancelled")


def connect(server: Server, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=120)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("batches")
    options = [*OPTIONS, OPTION.replace("@DIRECTORY@", str(directory))]
    models = ["parrot", "lettering"]
    with Server(directory / "s", models, options=options, frontends=()) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with connect(server) as client:
        yield client


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "1e400", "9" * 20, "9" * 5000])
def test_a_limit_out_of_range_is_refused(server: Server, limit: str) -> None:
    assert 400 == server.exchange(f"/v1/batches?limit={limit}").status
    assert 400 == server.exchange(f"/v1/files?limit={limit}").status


def test_a_long_name_makes_no_long_error(server: Server) -> None:
    answer = server.exchange(f"/v1/files?after={'a' * 6000}")

    assert 404 == answer.status
    assert len(answer.body) < 4096


def upload(client: openai.OpenAI, *lines: Any) -> str:
    file = ("requests.jsonl", io.BytesIO(text_of(*lines)))
    return client.files.create(file=file, purpose="batch").id


def begin(client: openai.OpenAI, *lines: Any, window: Any = "24h", endpoint: Any = CHAT) -> Batch:
    return client.batches.create(
        input_file_id=upload(client, *lines), endpoint=endpoint, completion_window=window
    )


def ended(client: openai.OpenAI, batch: str) -> Batch:
    """Return a batch when it has ended."""
    soon(lambda: client.batches.retrieve(batch).status in ENDS)
    return client.batches.retrieve(batch)


def answers(client: openai.OpenAI, file: str | None) -> dict[str, Any]:
    """Return the lines of an output by their ids, each of which is there once."""
    if file is None:
        return {}
    rows = [json.loads(row) for row in client.files.content(file).text.splitlines()]
    assert len(rows) == len({row["custom_id"] for row in rows})
    return {row["custom_id"]: row for row in rows}


def texts(rows: dict[str, Any]) -> dict[str, str]:
    return {
        own_id: row["response"]["body"]["choices"][0]["message"]["content"]
        for own_id, row in rows.items()
    }


def counts(batch: Batch) -> tuple[int, int, int]:
    numbers = batch.request_counts
    assert numbers is not None
    return numbers.total, numbers.completed, numbers.failed


def completed(client: openai.OpenAI, batch: str) -> int:
    """Return how many lines were answered; -1 while nobody says it."""
    try:
        return counts(client.batches.retrieve(batch))[1]
    except (openai.APIConnectionError, openai.InternalServerError):
        return -1


def is_idle(server: Server) -> bool:
    """Return True where the model has nothing more to do, not even what was cancelled."""
    load = server.request_json("/v2/models/parrot/load")[1]
    return 0 == load["queued"] == load["executing"] == load["unanswered"]


def test_a_batch_is_executed_line_by_line(client: openai.OpenAI) -> None:
    begun = client.batches.create(
        input_file_id=upload(client, *[line(f"id {n}", f"word {n}") for n in range(700)]),
        endpoint=CHAT,
        completion_window="24h",
        metadata={"for": "a test"},
    )
    assert (
        begun.object,
        begun.status,
        begun.endpoint,
        begun.completion_window,
    ) == ("batch", "validating", CHAT, "24h")

    batch = ended(client, begun.id)

    assert (batch.status, counts(batch)) == ("completed", (700, 700, 0))
    assert batch.metadata == {"for": "a test"}
    assert (batch.error_file_id, batch.errors) == (None, None)
    times = (batch.created_at, batch.in_progress_at, batch.finalizing_at, batch.completed_at)
    assert sorted(map(int, map(str, times))) == list(times)
    assert batch.expires_at == batch.created_at + 24 * 3600
    rows = answers(client, batch.output_file_id)
    assert {f"id {n}": f"word {n}" for n in range(700)} == texts(rows)
    row = rows["id 7"]
    assert list(row) == ["id", "custom_id", "response", "error"]
    assert list(row["response"]) == ["status_code", "request_id", "body"]
    assert (row["response"]["status_code"], row["error"]) == (200, None)
    assert row["id"].startswith("batch_req_")
    output = client.files.retrieve(str(batch.output_file_id))
    assert (f"{batch.id}_output.jsonl", "batch_output") == (output.filename, output.purpose)
    assert output.bytes == len(client.files.content(output.id).content)


def test_other_endpoints_have_batches_too(client: openai.OpenAI) -> None:
    embedding = {
        "custom_id": "vowels",
        "method": "POST",
        "url": "/v1/embeddings",
        "body": {"model": "lettering", "input": ["banana", "tree"]},
    }
    completion = {
        "custom_id": "words",
        "method": "POST",
        "url": "/v1/completions",
        "body": {"model": "parrot", "prompt": "three words here"},
    }
    begun = [begin(client, one, endpoint=one["url"]) for one in (embedding, completion)]

    vectors, words = (
        answers(client, ended(client, one.id).output_file_id).popitem()[1]["response"]["body"]
        for one in begun
    )

    assert [one["embedding"][0] for one in vectors["data"]] == [3.0, 0.0]
    assert words["choices"][0]["text"] == "three words here"


def test_lines_that_fail_are_told_beside_the_others(client: openai.OpenAI) -> None:
    lines = [
        line("good", "fine"),
        line("fails", "some FAIL"),
        line("unknown", model="nobody"),
        line("wrong", more={"body": {"model": "parrot", "messages": "none"}}),
        line("also good", "as well"),
    ]

    batch = ended(client, begin(client, *lines).id)

    assert (batch.status, counts(batch)) == ("completed", (5, 2, 3))
    assert texts(answers(client, batch.output_file_id)) == {"good": "fine", "also good": "as well"}
    errors = answers(client, batch.error_file_id)
    assert {own_id: row["response"]["status_code"] for own_id, row in errors.items()} == {
        "fails": 400,
        "unknown": 404,
        "wrong": 400,
    }
    assert errors["fails"]["response"]["body"]["error"]["message"] == "the word is FAIL"
    assert errors["unknown"]["response"]["body"]["error"]["code"] == "model_not_found"


def test_a_wrong_file_fails_before_anything_is_executed(
    server: Server, client: openai.OpenAI
) -> None:
    lines = [line("one", "FOREVER"), b"{", line("one"), line("two", more={"url": "/v2"})]
    soon(lambda: is_idle(server))
    before = len(read_journal(server.journal))

    batch = ended(client, begin(client, *lines).id)

    assert (batch.status, counts(batch)) == ("failed", (0, 0, 0))
    assert None is batch.output_file_id is batch.error_file_id
    assert batch.errors is not None
    assert [(one.line, one.code) for one in batch.errors.data or ()] == [
        (2, "invalid_json_line"),
        (3, "duplicate_custom_id"),
        (4, "invalid_url"),
    ]
    assert "endless" not in {record.event for record in read_journal(server.journal)[before:]}


def test_a_batch_is_cancelled_and_keeps_what_was_answered(
    server: Server, client: openai.OpenAI
) -> None:
    first = [line(f"first {n}") for n in range(20)]
    forever = [line(f"never {n}", "FOREVER") for n in range(4)]
    begun = begin(client, *first, *forever, *[line(f"later {n}") for n in range(3000)])
    soon(lambda: counts(client.batches.retrieve(begun.id))[1] == 20)

    assert client.batches.cancel(begun.id).status == "cancelling"
    batch = ended(client, begun.id)

    assert (batch.status, counts(batch)) == ("cancelled", (3024, 20, 3004))
    assert {f"first {n}" for n in range(20)} == answers(client, batch.output_file_id).keys()
    errors = answers(client, batch.error_file_id)
    assert {"batch_cancelled"} == {row["error"]["code"] for row in errors.values()}
    assert {None} == {row["response"] for row in errors.values()}
    assert next(one["custom_id"] for one in forever) in errors
    assert "later 2999" in errors
    # the models saw it
    soon(lambda: "cancelled" in {record.event for record in read_journal(server.journal)})
    # one that has ended stays as it is
    assert client.batches.cancel(begun.id).status == "cancelled"


def test_a_line_that_ran_when_its_process_died_is_an_error(
    server: Server, client: openai.OpenAI
) -> None:
    soon(lambda: is_idle(server))
    before = len(read_journal(server.journal))
    begun = begin(client, line("ran", "FOREVER"), *[line(f"id {n}") for n in range(9)])
    soon(lambda: "endless" in {one.event for one in read_journal(server.journal)[before:]})

    for pid in server.pids()["jobs"]:
        os.kill(pid, signal.SIGKILL)
    soon(lambda: completed(client, begun.id) > 0)
    batch = ended(client, begun.id)

    assert (batch.status, sum(counts(batch)[1:])) == ("completed", 10)
    error = answers(client, batch.error_file_id)["ran"]
    assert (error["response"], error["error"]["code"]) == (None, "server_error")
    assert "the server ended while the job ran" in error["error"]["message"]
    assert (
        len({*answers(client, batch.output_file_id), *answers(client, batch.error_file_id)}) == 10
    )


def test_a_batch_ends_with_its_window(client: openai.OpenAI) -> None:
    lines = [line("good"), *[line(f"never {n}", "FOREVER") for n in range(6)]]
    begun = begin(client, *lines, window="5s")

    batch = ended(client, begun.id)

    assert (batch.status, counts(batch)) == ("expired", (7, 1, 6))
    errors = answers(client, batch.error_file_id)
    assert {"batch_expired"} == {row["error"]["code"] for row in errors.values()}
    assert len(errors) == 6


def test_files_are_listed_read_and_removed(client: openai.OpenAI) -> None:
    content = text_of(line("a", "é"))
    ids = [
        client.files.create(file=(name, io.BytesIO(content)), purpose="batch").id
        for name in ("../../etc/passwd", 'a "b"\\c.jsonl', "ü.jsonl")
    ]

    file = client.files.retrieve(ids[0])
    assert ("file", "../../etc/passwd", "batch", "processed", len(content)) == (
        file.object,
        file.filename,
        file.purpose,
        file.status,
        file.bytes,
    )
    assert content == client.files.content(ids[1]).content
    listed = [one.id for one in client.files.list(purpose="batch", limit=2)]  # in several pages
    assert list(reversed(ids)) == listed[:3]
    rising = [one.id for one in client.files.list(order="asc")]
    assert set(listed) <= set(rising)
    # a batch that still runs may have written its output behind them
    assert ids == [one for one in rising if one in listed][-3:]

    assert client.files.delete(ids[0]).deleted
    for ask_for in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError, match="No such File object"):
            ask_for(ids[0])
    kept = client.files.create(
        file=("k", content),
        purpose="batch",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )
    assert kept.expires_at == kept.created_at + 3600


def test_a_download_goes_on_though_its_process_is_killed(
    server: Server, client: openai.OpenAI
) -> None:
    content = text_of(line("a", "x" * (48 << 20)))  # more than lies in sockets
    file = client.files.create(file=("f", content), purpose="batch").id
    [pid] = server.pids()["jobs"]

    with client.files.with_streaming_response.content(file) as answer:
        parts = answer.iter_bytes(1000)
        begun = next(parts)
        os.kill(pid, signal.SIGKILL)
        rest = b"".join(parts)

    assert content == begun + rest
    client.files.delete(file)


def test_the_input_of_a_batch_stays_until_that_has_ended(client: openai.OpenAI) -> None:
    begun = begin(client, line("never", "FOREVER"))
    with pytest.raises(openai.ConflictError, match=begun.id):
        client.files.delete(begun.input_file_id)

    client.batches.cancel(begun.id)
    ended(client, begun.id)

    assert client.files.delete(begun.input_file_id).deleted


def test_outputs_are_kept_for_as_long_as_their_client_says(client: openai.OpenAI) -> None:
    begun = client.batches.create(
        input_file_id=upload(client, line("a")),
        endpoint=CHAT,
        completion_window="24h",
        output_expires_after={"anchor": "created_at", "seconds": 7200},
    )

    output = client.files.retrieve(str(ended(client, begun.id).output_file_id))
    usual = client.files.retrieve(str(ended(client, begin(client, line("a")).id).output_file_id))

    # its time begins when it is whole
    assert 7200 <= int(str(output.expires_at)) - output.created_at < 7300
    assert int(str(usual.expires_at)) - usual.created_at >= 7 * 24 * 3600


def test_the_operator_sees_and_cancels_batches_of_all(
    server: Server, client: openai.OpenAI
) -> None:
    begun = begin(client, line("a"), line("never", "FOREVER"))
    soon(lambda: counts(client.batches.retrieve(begun.id)) == (2, 1, 0))

    head, row, *_ = (text.split("\t") for text in ctl(server, "batches").output.splitlines())
    shown = dict(zip(head, row, strict=True))
    del shown["Age"]
    assert {
        "Batch": begun.id,
        "State": "in_progress",
        "Answered": "1 of 2",
        "Failed": "0",
        "Token": "",
        "Endpoint": CHAT,
        "Input": begun.input_file_id,
    } == shown

    [document] = json.loads(ctl(server, "batches", "cancel", begun.id, "--json").output)
    assert (begun.id, "cancelling") == (document["id"], document["status"])
    assert ended(client, begun.id).status == "cancelled"
    [newest] = json.loads(ctl(server, "batches", "--limit", "1", "--json").output)
    assert (begun.id, "cancelled") == (newest["id"], newest["status"])
    unknown = ctl(server, "batches", "cancel", "batch_0")
    assert unknown.exit_code == 1
    assert "No batch found with id 'batch_0'" in unknown.output


def test_batches_are_listed_in_pages(client: openai.OpenAI) -> None:
    ids = [begin(client, line("a")).id for _ in range(3)]

    listed = [one.id for one in client.batches.list(limit=2)]

    assert list(reversed(ids)) == listed[:3]
    assert len(set(listed)) == len(listed)


@pytest.mark.parametrize(
    "fields",
    [
        {"endpoint": "/v2/models/parrot/infer"},
        {"completion_window": "soon"},
        {"completion_window": "0h"},
        {"metadata": {"a": "x" * 513}},
        {"metadata": {"a": 1}},
        {"extra_body": {"output_expires_after": {"anchor": "created_at", "seconds": 60}}},
        {"input_file_id": None},
    ],
)
def test_what_no_batch_can_be_made_of_is_refused(
    client: openai.OpenAI, fields: dict[str, Any]
) -> None:
    usual: dict[str, Any] = {
        "input_file_id": upload(client, line("a")),
        "endpoint": CHAT,
        "completion_window": "24h",
    }
    with pytest.raises(openai.BadRequestError):
        client.batches.create(**{**usual, **fields})


def test_an_output_is_no_input(client: openai.OpenAI) -> None:
    output = ended(client, begin(client, line("a")).id).output_file_id
    with pytest.raises(openai.BadRequestError, match="purpose"):
        client.batches.create(input_file_id=str(output), endpoint=CHAT, completion_window="24h")


@pytest.mark.parametrize(
    ("form", "headers", "status"),
    [
        (b"", {"Content-Type": "multipart/form-data; boundary=b"}, 400),
        (b"{}", {"Content-Type": "application/json"}, 415),
        (b"", {"Content-Type": "multipart/form-data; boundary=b", "Content-Encoding": "gzip"}, 415),
        (
            b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b--',
            {"Content-Type": "multipart/form-data; boundary=b"},
            400,
        ),
        (
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n{}\r\n--b--',
            {"Content-Type": "multipart/form-data; boundary=b"},
            400,
        ),
    ],
)
def test_a_form_that_is_no_file_is_refused_and_kept_nowhere(
    server: Server, client: openai.OpenAI, form: bytes, headers: dict[str, str], status: int
) -> None:
    # batches that still run write files, too
    soon(lambda: all(batch.status in ENDS for batch in client.batches.list()))
    files = server.directory / "state" / "zmqtriton" / "jobs" / "files"
    before = set(files.iterdir())

    reply = ask(server, "/v1/files", form, headers)

    assert status == reply.status
    assert list(reply.document["error"]) == ["message", "type", "param", "code"]
    assert before == set(files.iterdir())


@pytest.mark.parametrize(
    "name", ["0", "..", "file-..", "..%2f..%2flock", "file-" + "0" * 26, "batch_" + "0" * 26]
)
def test_a_name_that_is_nothing_is_no_path(server: Server, name: str) -> None:
    for kind in ("files", "batches"):
        assert ask(server, f"/v1/{kind}/{name}").status == 404
    assert ask(server, f"/v1/files/{name}/content").status == 404
    assert ask(server, f"/v1/files/{name}", method="DELETE").status == 404
    assert ask(server, f"/v1/batches/{name}/cancel", b"").status == 404


def test_curl_sends_a_file(server: Server, tmp_path: Path) -> None:
    curl = find_tool("curl")
    path = tmp_path / "requests.jsonl"
    path.write_bytes(text_of(line("a")))
    url = f"{server.url}/v1/files"
    words = [curl, "-s", "-F", "purpose=batch", "-F", f"file=@{path}", url]

    answer = subprocess.run(words, capture_output=True, check=True).stdout
    # of unknown length
    chunked = [*words, "-H", "Transfer-Encoding: chunked"]
    again = subprocess.run(chunked, capture_output=True, check=True).stdout

    for text in (answer, again):
        assert path.stat().st_size == json.loads(text)["bytes"]


def test_jobs_and_batches_go_on_when_the_server_drains_no_more(
    server: Server, client: openai.OpenAI
) -> None:
    begun = begin(client, *[line(f"id {n}") for n in range(600)])
    soon(lambda: completed(client, begun.id) > 0)
    assert ctl(server, "drain", "--quiet=0").exit_code == 0
    body = json.dumps(line("a")["body"]).encode()
    job = ask(server, CHAT, body, {"Prefer": "respond-async"}).document["id"]
    assert ask(server, f"/v2/jobs/{job}").document["state"] == "queued"

    assert ctl(server, "undrain").exit_code == 0

    soon(lambda: ask(server, f"/v2/jobs/{job}").document["state"] == "succeeded")
    assert counts(ended(client, begun.id)) == (600, 600, 0)
    ask(server, f"/v2/jobs/{job}", method="DELETE")


def test_the_lines_of_a_batch_are_nobody_s_jobs(server: Server, client: openai.OpenAI) -> None:
    begun = begin(client, line("never", "FOREVER"))
    soon(lambda: client.batches.retrieve(begun.id).status == "in_progress")

    assert ask(server, "/v2/jobs").document["jobs"] == []

    client.batches.cancel(begun.id)
    ended(client, begun.id)


def test_files_and_batches_belong_to_their_token(tmp_path: Path) -> None:
    secrets = {name: f"zmqt_a-secret-of-{name}-0123456789" for name in ("ann", "ben")}
    scopes = token_file.parse_scopes("infer")
    models = {"ann": ("parrot",), "ben": ALL_MODELS}
    tokens = tmp_path / "tokens"
    tokens.write_text(
        "".join(
            Grant(name, token_file.Grant.digest_of(secret), scopes, models[name]).line() + "\n"
            for name, secret in secrets.items()
        )
    )
    tokens.chmod(0o600)
    options = [*OPTIONS, f"--tokens={tokens}"]
    server = Server(tmp_path / "s", ["parrot"], options=options, frontends=())
    server.add_model("parrot", "other")
    with (
        server,
        connect(server, secrets["ann"]) as ann,
        connect(server, secrets["ben"]) as ben,
        connect(server) as nobody,
    ):
        with pytest.raises(openai.AuthenticationError):
            upload(nobody, line("a"))
        begun = begin(ann, line("hers"), line("not hers", model="other"))
        batch = ended(ann, begun.id)

        # lines have the rights of the token
        assert {"hers"} == answers(ann, batch.output_file_id).keys()
        [refused] = answers(ann, batch.error_file_id).values()
        assert refused["response"]["status_code"] in (401, 403)
        for name in (batch.input_file_id, batch.output_file_id, batch.error_file_id):
            for ask_for in (ben.files.retrieve, ben.files.content, ben.files.delete):
                with pytest.raises(openai.NotFoundError):
                    ask_for(str(name))
        for change in (ben.batches.retrieve, ben.batches.cancel):
            with pytest.raises(openai.NotFoundError):
                change(batch.id)
        with pytest.raises(openai.NotFoundError):
            ben.batches.create(
                input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h"
            )
        assert [*ben.files.list(), *ben.batches.list()] == []


@pytest.mark.long(
    "extras/jobs/batches/process/test_results.py::test_what_lies_on_disk_counts",
    "extras/jobs/process/test_store.py::test_what_has_ended_long_ago_is_removed_with_its_files",
    "extras/jobs/process/test_store.py::test_a_limit_of_bytes_refuses_new_jobs_and_removes_none",
)
def test_limits_of_bytes_and_of_time(tmp_path: Path) -> None:
    options = [*OPTIONS, "--jobs-keep-secs=2", "--jobs-max-bytes=300000"]
    server = Server(tmp_path, ["parrot"], options=options, frontends=())
    with server, connect(server) as client:
        lines = [line(f"id {n}", "x" * 1000) for n in range(400)]
        with pytest.raises(openai.InternalServerError, match="--jobs-max-bytes=300000") as caught:
            upload(client, *lines)
        assert caught.value.status_code == 507

        batch = ended(client, begin(client, line("a")).id)
        assert batch.status == "completed"

        files = server.directory / "state" / "zmqtriton" / "jobs" / "files"
        soon(lambda: list(files.iterdir()) == [])
        soon(lambda: list(client.batches.list()) == [])
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve(str(batch.output_file_id))


@pytest.mark.parametrize(
    "victim",
    [
        "jobs",
        *(
            pytest.param(
                role,
                marks=pytest.mark.long(
                    "extras/jobs/batches/system/test_batches.py::"
                    "test_no_line_is_lost_or_answered_twice_whatever_is_killed"
                ),
            )
            for role in ("http", "stub", "supervisor")
        ),
    ],
)
def test_no_line_is_lost_or_answered_twice_whatever_is_killed(tmp_path: Path, victim: str) -> None:
    server = Server(tmp_path, ["parrot"], options=OPTIONS, frontends=())
    with (server.repository / "parrot" / "config.pbtxt").open("a") as config:
        config.write('parameters { key: "JOBS_REPEAT" value { string_value: "true" } }')
    total = 600
    with server, connect(server) as client:
        begun = begin(client, *[line(f"id {n}", f"word {n}") for n in range(total)])
        for least in (1, 250):
            soon(lambda least=least: completed(client, begun.id) >= least)  # type: ignore[misc]
            if victim == "supervisor":
                server.kill()
                server.process = None
                server.start()
            else:
                for pid in server.pids()[victim]:
                    os.kill(pid, signal.SIGKILL)
        soon(lambda: completed(client, begun.id) == total)
        batch = ended(client, begun.id)

        assert ("completed", (total, total, 0)) == (batch.status, counts(batch))
        rows = answers(client, batch.output_file_id)
        assert {f"id {n}": f"word {n}" for n in range(total)} == texts(rows)
        state = server.directory / "state" / "zmqtriton" / "jobs"
        soon(lambda: list((state / "bodies").iterdir()) == [])
        kept = {batch.input_file_id, batch.output_file_id}
        assert kept == {file.name for file in (state / "files").iterdir()}
