"""Stand-ins for the stores of Azure and Google in tests: take objects of one bucket, in memory.

Clients find them by the variables of each provider's emulator.
"""

from __future__ import annotations

import base64
import hmac
import threading
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

_BUCKET = "captures"
_ACCOUNT = "devstoreaccount1"
_KEY = base64.b64encode(b"the key of this test's account").decode()
#: The headers that Azure's clients sign by their place.
_SIGNED = (
    "Content-Encoding",
    "Content-Language",
    "Content-Length",
    "Content-MD5",
    "Content-Type",
    "Date",
    "If-Modified-Since",
    "If-Match",
    "If-None-Match",
    "If-Unmodified-Since",
    "Range",
)
_Own = TypeVar("_Own", bound="_Blobs")


class _Handler(BaseHTTPRequestHandler):
    server: _Blobs

    def do_PUT(self) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, code = self._refusal()
        if status == 200 and not path.startswith(self.server.place):
            status, code = 404, "NoSuchBucket"
        if status == 200:
            self.server.blobs[path.removeprefix(self.server.place)] = body
        answer = f"<Error><Code>{code}</Code></Error>".encode() if code else b""
        self.send_response(status)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _refusal(self) -> tuple[int, str]:
        """Return the status and code of a request that is refused; 200 for another."""
        raise NotImplementedError

    def log_message(self, format: str, *args: object) -> None:
        """Not on the tests' output."""


class _AzureHandler(_Handler):
    """Refuses requests that are not signed with the account's key, as Shared Key has it."""

    def _refusal(self) -> tuple[int, str]:
        headers = {name.lower(): value.strip() for name, value in self.headers.items()}
        own = sorted(name for name in headers if name.startswith("x-ms-"))
        address = urlsplit(self.path)
        lines = [
            self.command,
            *(headers.get(name.lower(), "") for name in _SIGNED),
            *(f"{name}:{headers[name]}" for name in own),
            f"/{_ACCOUNT}{address.path}",
            *(f"{name}:{value}" for name, value in sorted(parse_qsl(address.query))),
        ]
        signed = hmac.digest(base64.b64decode(_KEY), "\n".join(lines).encode(), sha256)
        if headers["authorization"] != f"SharedKey {_ACCOUNT}:{base64.b64encode(signed).decode()}":
            return 403, "AuthenticationFailed"
        return (
            (200, "") if headers["x-ms-blob-type"] == "BlockBlob" else (400, "InvalidHeaderValue")
        )


class _GoogleHandler(_Handler):
    """Refuses everybody who has an identity: this is no server of Google's."""

    def _refusal(self) -> tuple[int, str]:
        has_identity = self.headers.get("Authorization", "Bearer").strip() != "Bearer"
        return (401, "AuthenticationRequired") if has_identity else (200, "")


class _Blobs(ThreadingHTTPServer):
    """Running between `with` and its end."""

    def __init__(self, handler: type[_Handler], place: str) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        #: The beginning of paths.
        self.place = place
        self.blobs: dict[str, bytes] = {}
        self._thread = threading.Thread(target=self.serve_forever)

    def __enter__(self: _Own) -> _Own:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def contents(self, folder: str) -> dict[str, bytes]:
        """Return the objects in a folder, by path."""
        start = f"{folder}/"
        return {
            name.removeprefix(start): blob
            for name, blob in self.blobs.items()
            if name.startswith(start)
        }


class AzureBlobs(_Blobs):
    def __init__(self) -> None:
        super().__init__(_AzureHandler, f"/{_ACCOUNT}/{_BUCKET}/")
        self.url = f"as://{_ACCOUNT}/{_BUCKET}"
        self.variables = {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{self.server_port}",
            "AZURE_STORAGE_ACCOUNT": _ACCOUNT,
            "AZURE_STORAGE_KEY": _KEY,
        }


class GoogleBlobs(_Blobs):
    def __init__(self) -> None:
        super().__init__(_GoogleHandler, f"/{_BUCKET}/")
        self.url = f"gs://{_BUCKET}"
        self.variables = {"STORAGE_EMULATOR_HOST": f"127.0.0.1:{self.server_port}"}
