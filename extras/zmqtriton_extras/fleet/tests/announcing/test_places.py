"""Files and URLs that announcements go to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_extras.fleet.announcing.announcer import AnnounceError, open_place, own_host
from zmqtriton_extras.fleet.tests.announcing.receiver import Receiver

pytestmark = pytest.mark.slow

LINE = b'{"at_s": 1}\n'
WITHIN_S = 30.0


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


def test_a_file_is_replaced_by_another_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("what was there before and is longer")
    with path.open() as reader:
        open_place(str(path), "")(LINE, WITHIN_S)

        assert "what was there" in reader.read(), "who reads it goes on reading the old one"
    assert path.read_bytes() == LINE
    assert [path] == list(tmp_path.iterdir()), "no draft is left"


def test_the_end_of_a_server_is_not_told_over_what_its_successor_has_told(tmp_path: Path) -> None:
    path = tmp_path / "a.json"

    def tell(**announcement: Any) -> dict[str, Any]:
        open_place(str(path), "")(json.dumps(announcement).encode(), WITHIN_S)
        return json.loads(path.read_text())

    assert tell(state="ended", started_s=1)["state"] == "ended"
    assert tell(state="ready", started_s=2)["state"] == "ready"
    assert tell(state="ended", started_s=1)["state"] == "ready"
    assert tell(state="ended", started_s=2)["state"] == "ended"
    assert tell(state="ready", started_s=1)["started_s"] == 1, "clocks may have been wrong before"


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AnnounceError, match="No such file or directory"):
        open_place(str(tmp_path / "missing" / "a.json"), "")(LINE, WITHIN_S)
    (tmp_path / "directory").mkdir()
    with pytest.raises(AnnounceError, match="Is a directory"):
        open_place(str(tmp_path / "directory"), "")(LINE, WITHIN_S)
    assert [path.name for path in tmp_path.iterdir()] == ["directory"]


def test_a_url_gets_a_post_with_the_token_of_the_moment(receiver: Receiver, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    tell = open_place(receiver.url, str(token_file))

    for token in ("first", "second"):
        token_file.write_text(f"{token}\n")
        tell(LINE, WITHIN_S)

    assert [json.loads(LINE)] * 2 == receiver.received
    assert receiver.authorizations == ["Bearer first", "Bearer second"]


def test_a_url_may_have_any_letters(receiver: Receiver) -> None:
    open_place(f"{receiver.url}/\u00fc?who=\u00fc%20b", "")(LINE, WITHIN_S)

    assert [json.loads(LINE)] == receiver.received


def test_a_host_that_cannot_be_is_an_error() -> None:
    url = f"http://{'a' * 70}.example/servers"

    with pytest.raises(AnnounceError, match="its host name is invalid: correct the URL"):
        open_place(url, "")(LINE, WITHIN_S)
    assert own_host(url) == own_host("a.json")


def test_a_token_that_is_none_is_sent_nowhere(receiver: Receiver, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    tell = open_place(receiver.url, str(token_file))
    for content in (b"", b"two\nlines", b"\xff"):
        token_file.write_bytes(content)
        with pytest.raises(AnnounceError, match=r"not a token|one line with a token"):
            tell(LINE, WITHIN_S)

    assert receiver.received == []


@pytest.mark.parametrize("status", [302, 400, 503])
def test_an_answer_that_is_no_success_is_an_error(receiver: Receiver, status: int) -> None:
    receiver.status = status
    with pytest.raises(AnnounceError, match=str(status)):
        open_place(receiver.url, "")(LINE, WITHIN_S)


def test_the_own_host_is_the_address_from_which_the_place_is_reached() -> None:
    assert own_host("http://127.0.0.1:1/servers") == "127.0.0.1"
    assert own_host("a.json")
    assert own_host("http://nobody.invalid/servers") == own_host("a.json")
