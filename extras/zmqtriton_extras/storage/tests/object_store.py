"""An object store with S3's interface for tests: moto's server, a process of its own on loopback.

It does for Google's, too, whose interface is the same for clients like ours.

with ObjectStore() as store:
    store.put("models/add_sub/1/model.py", b"...")
    Server(tmp_path, options=[f"--model-repository={store.url}/models"])
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

from tests.support.needs import skip_missing
from tests.support.server import free_ports
from tests.support.waiting import eventually

#: Moto checks no signature, but that there is one. Everybody may read then, without any.
_ACCESS_HEADERS = {
    "x-amz-acl": "public-read-write",
    "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0",
}


class ObjectStore:
    """Running between `with` and its end."""

    def __init__(self) -> None:
        for tool in ("moto", "obstore"):
            if importlib.util.find_spec(tool) is None:
                skip_missing(tool)
        (self._port,) = free_ports(1)
        self.bucket = "modelsoftests"
        self.server = f"127.0.0.1:{self._port}"
        self.url = f"s3://{self.server}/{self.bucket}"
        #: What a client needs to be somebody.
        self.variables = {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ObjectStore:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually(self._is_up, 60, "moto's server answers")
        return self

    def _is_up(self) -> bool:
        try:
            return self._request("PUT", f"/{self.bucket}") == 200
        except OSError:
            return False

    def _request(self, method: str, path: str, body: bytes = b"") -> int:
        return self._answer(method, path, body)[0]

    def _answer(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, path, body, _ACCESS_HEADERS)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def put(self, name: str, content: bytes | str) -> None:
        """Under this name, whatever it is."""
        body = content.encode() if isinstance(content, str) else content
        path = f"/{self.bucket}/{quote(name)}"
        # Moto stumbles when somebody lists meanwhile.
        eventually(lambda: self._request("PUT", path, body) == 200, 60, f"{name} is there")

    def contents(self, folder: str) -> dict[str, bytes]:
        """Return what is in a folder, by path."""
        listed = self._answer("GET", f"/{self.bucket}?list-type=2&prefix={quote(folder)}/")[1]
        keys = re.findall("<Key>(.*?)</Key>", listed.decode())
        return {
            key.removeprefix(f"{folder}/"): self._answer("GET", f"/{self.bucket}/{quote(key)}")[1]
            for key in keys
        }

    def delete(self, *names: str) -> None:
        for name in names:
            path = f"/{self.bucket}/{quote(name)}"
            eventually(lambda path=path: self._request("DELETE", path) == 204, 60)  # type: ignore[misc]

    def __exit__(self, *error: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)


@contextlib.contextmanager
def held_after_first_piece(store: ObjectStore, may_go_on: threading.Event) -> Iterator[str]:
    """The address of the store for clients that get the rest of a large object only then."""

    class Relay(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            range_header = self.headers.get("Range", "bytes=0-")
            if not range_header.startswith("bytes=0-"):
                may_go_on.wait(60)
            connection = http.client.HTTPConnection(store.server, timeout=30)
            with contextlib.closing(connection):
                connection.request("GET", self.path, headers=dict(self.headers))
                answer = connection.getresponse()
                body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "content-length", "date", "server"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Not on the tests' output."""

    relay = ThreadingHTTPServer(("127.0.0.1", 0), Relay)
    thread = threading.Thread(target=relay.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{relay.server_port}"
    finally:
        may_go_on.set()
        relay.shutdown()
        thread.join()
        relay.server_close()
