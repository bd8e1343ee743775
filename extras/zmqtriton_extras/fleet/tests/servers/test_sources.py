"""Words of the command line that lead to servers."""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from zmqtriton_extras.fleet.servers.sources import find_nodes
from zmqtriton_floor.errors import InvalidArgument


def write(path: Path, http: str, **changes: object) -> Path:
    document = {"format": 1, "interval_s": 5, "state": "ready", "addresses": {"http": http}}
    path.write_text(json.dumps({**document, **changes}) + "\n")
    return path


def names(*words: str) -> list[tuple[str, str]]:
    return [(node.http, node.state) for node in find_nodes(words)]


def test_an_address_a_list_an_announcement_and_a_directory(tmp_path: Path) -> None:
    listed = tmp_path / "servers"
    listed.write_text("b:1\nc:1,grpc=2\n")
    alone = write(tmp_path / "d.json", "d:1")
    directory = tmp_path / "announced"
    directory.mkdir()
    write(directory / "e.json", "e:1")
    write(directory / "f.json", "f:1", state="ended")
    (directory / ".draft").write_text("half a li")

    nodes = names("a:1", str(listed), str(alone), str(directory))

    plain = [("a:1", ""), ("b:1", ""), ("c:1", "")]
    assert [*plain, ("d:1", "ready"), ("e:1", "ready"), ("f:1", "ended")] == nodes


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(b"\x7fELF\xd0\x00")

    with pytest.raises(InvalidArgument, match="neither there nor an address"):
        names(str(path))


def test_a_file_that_is_not_replaced_any_more_tells_of_a_server_that_is_gone(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "a.json", "a:1")
    os.utime(path, (path.stat().st_mtime - 60, path.stat().st_mtime - 60))

    assert names(str(path)) == [("a:1", "stale")]


def test_a_url_with_a_path_answers_with_announcements(tmp_path: Path) -> None:
    content = write(tmp_path / "a.json", "a:1").read_bytes()
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["X-Key"])
            self.send_response(200 if self.path == "/servers" else 404)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            assert [n.http for n in find_nodes([f"{url}/servers"], {"X-Key": "k"})] == ["a:1"]
            assert [url] == [node.url for node in find_nodes([url])], "without a path: a server"
            with pytest.raises(InvalidArgument, match="Not Found"):
                find_nodes([f"{url}/nothing"])
        finally:
            server.shutdown()
            thread.join()
    assert seen == ["k", None]


def test_mistakes_name_the_word(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"format"')
    for word in (str(bad), str(tmp_path / "missing"), "nothing"):
        with pytest.raises(InvalidArgument, match=word):
            find_nodes([word])
