"""A hub as Hugging Face's and a registry of OCI's, on loopback, as far as their clients ask them.

with Hub() as hub:
    commit = hub.put("org/name", {"m/1/model.py": b"..."}, large={"m/1/weights": b"..."})
    Server(tmp_path, options=["--model-repository=hf://org/name"], environment=hub.variables)
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import tarfile
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

Headers = Mapping[str, str]


class Said(NamedTuple):
    """An answer of a stand-in."""

    status: int = 200
    body: bytes = b""
    headers: Headers = MappingProxyType({})


class Asked(NamedTuple):
    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Headers


class Origin:
    """A server that answers by `answer`; running between `with` and its end."""

    def __init__(self) -> None:
        #: The requests of it, in order, as method and path.
        self.requests: list[Asked] = []
        #: Bodies end after this many bytes, as if the line were cut, this many times.
        self.cut_bytes, self.cuts = 0, 0
        origin = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                origin.handle(self)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: object) -> None:
                """Not on the tests' output."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, request: Asked) -> Said:
        raise NotImplementedError

    def paths(self, part: str) -> list[str]:
        """Return the paths of requests that have this part."""
        return [request.path for request in self.requests if part in request.path]

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        target = urlsplit(handler.path)
        headers = {name.lower(): value for name, value in handler.headers.items()}
        request = Asked(
            handler.command or "", unquote(target.path), parse_qs(target.query), headers
        )
        self.requests.append(request)
        said = self.answer(request)
        status, body = said.status, said.body
        start = re.fullmatch(r"bytes=(\d+)-", headers.get("range", ""))
        if status == 200 and start:
            status, body = 206, body[int(start.group(1)) :]
        handler.send_response(status)
        for name, value in said.headers.items():
            handler.send_header(name, value)
        if "Content-Length" not in said.headers:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if request.method == "HEAD":
            return
        if self.cuts and self.cut_bytes < len(body):
            self.cuts -= 1
            handler.wfile.write(body[: self.cut_bytes])
            handler.close_connection = True
            return
        try:
            handler.wfile.write(body)
        except OSError:
            handler.close_connection = True  # the client is gone


# ------------------------------------------------------------------------ hub


class Hub(Origin):
    """Knows repositories by name, commits and branches; large files are another host's."""

    def __init__(self) -> None:
        super().__init__()
        self.token = ""
        self.variables = {"HF_ENDPOINT": f"http://{self.address}", "HF_HUB_DISABLE_TELEMETRY": "1"}
        self._commits: dict[tuple[str, str], dict[str, tuple[bytes, bool]]] = {}
        self._branches: dict[tuple[str, str], str] = {}

    def put(
        self,
        name: str,
        files: Mapping[str, bytes],
        large: Mapping[str, bytes] | None = None,
        branch: str = "main",
    ) -> str:
        """Commit these files, of which the large ones are kept by LFS, and return the commit."""
        tree = {path: (data, False) for path, data in files.items()}
        tree |= {path: (data, True) for path, data in (large or {}).items()}
        commit = hashlib.sha1(repr(sorted(tree.items())).encode()).hexdigest()
        self._commits[name, commit] = tree
        self._branches[name, branch] = commit
        return commit

    def answer(self, request: Asked) -> Said:
        if request.path.startswith("/large/"):
            assert "authorization" not in request.headers, "the token was sent to another host"
            return Said(body=self._large(request.path.removeprefix("/large/")))
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return _refusal(401, "RepoNotFound", "Invalid username or password.")
        info = re.fullmatch("/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", request.path)
        if info:
            return self._info(info.group(1), info.group(3) or "main", info.group(2) == "tree")
        file = re.fullmatch("/([^/]+/[^/]+)/resolve/([0-9a-f]{40})/(.+)", request.path)
        if file and (file.group(1), file.group(2)) in self._commits:
            return self._file(*file.groups())
        return _refusal(404, "RepoNotFound", "Repository not found")

    def _info(self, name: str, revision: str, is_tree: bool) -> Said:
        if not any(each == name for each, _ in self._commits):
            return _refusal(404, "RepoNotFound", "Repository not found")
        commit = self._branches.get((name, revision), revision)
        tree = self._commits.get((name, commit))
        if tree is None:
            return _refusal(404, "RevisionNotFound", "Invalid rev id")
        siblings, entries = [], []
        for path, (data, is_large) in tree.items():
            sibling: dict[str, Any] = {"rfilename": path, "size": len(data), "blobId": _git(data)}
            entry = {"type": "file", "path": path, "size": len(data), "oid": _git(data)}
            if is_large:
                about = {"size": len(data), "pointerSize": 134}
                sibling["lfs"] = {**about, "sha256": hashlib.sha256(data).hexdigest()}
                entry["lfs"] = {**about, "oid": hashlib.sha256(data).hexdigest()}
            siblings.append(sibling)
            entries.append(entry)
        document = {"id": name, "modelId": name, "sha": commit, "siblings": siblings, "tags": []}
        return Said(body=json.dumps(entries if is_tree else document).encode(), headers=_JSON)

    def _file(self, name: str, commit: str, path: str) -> Said:
        data, is_large = self._commits[name, commit][path]
        tag = hashlib.sha256(data).hexdigest() if is_large else _git(data)
        headers = {"X-Repo-Commit": commit, "ETag": f'"{tag}"'}
        if not is_large:
            return Said(body=data, headers=headers)
        place = f"http://localhost:{self.address.partition(':')[2]}"
        location = f"{place}/large/{hashlib.sha256(data).hexdigest()}"
        return Said(302, headers={**headers, "Location": location})

    def _large(self, digest: str) -> bytes:
        trees = self._commits.values()
        blobs = {hashlib.sha256(data).hexdigest(): data for t in trees for data, _ in t.values()}
        return self.damaged.get(digest, blobs[digest])

    #: Other bytes for a digest.
    damaged: Mapping[str, bytes] = {}


def _git(data: bytes) -> str:
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


_JSON = {"Content-Type": "application/json"}


def _refusal(status: int, code: str, text: str) -> Said:
    return Said(status, json.dumps({"error": text}).encode(), {"X-Error-Code": code, **_JSON})


# ------------------------------------------------------------------- registry


IMAGE_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
IMAGE_INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


class Registry(Origin):
    """Knows blobs and manifests by digest, manifests by tag too; with `login` it wants a token."""

    def __init__(self) -> None:
        super().__init__()
        #: User and password; "" for none.
        self.login = ""
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}

    def login_file(self, directory: Path) -> dict[str, str]:
        """Write the login as `docker login` does, and return the variable that names it."""
        auth = base64.b64encode(self.login.encode()).decode()
        document = {"auths": {self.address: {"auth": auth}}}
        (directory / "config.json").write_text(json.dumps(document))
        return {"DOCKER_CONFIG": str(directory)}

    def put(
        self, tag: str, *layers: bytes, titles: Mapping[int, str] | None = None, **platform: str
    ) -> str:
        """Push layers, of which those with a title are files, and return the digest."""
        described = []
        for number, layer in enumerate(layers):
            digest = digest_of(layer)
            self.blobs[digest] = layer
            kind = f"{LAYER}+gzip" if layer.startswith(b"\x1f\x8b") else LAYER
            entry: dict[str, Any] = {"mediaType": kind, "digest": digest, "size": len(layer)}
            if titles and number in titles:
                entry["annotations"] = {"org.opencontainers.image.title": titles[number]}
            described.append(entry)
        config = b"{}"
        self.blobs[digest_of(config)] = config
        about = {"mediaType": "application/vnd.oci.image.config.v1+json", "size": len(config)}
        return self.put_manifest(
            tag,
            {
                "schemaVersion": 2,
                "mediaType": IMAGE_MANIFEST,
                "config": {**about, "digest": digest_of(config)},
                "layers": described,
            },
        )

    def put_index(self, tag: str, **manifests: str) -> str:
        """Push an index of manifests by architecture; `unknown` is no image."""
        entries = []
        for machine, digest in manifests.items():
            system = "unknown" if machine == "unknown" else "linux"
            about = {"mediaType": IMAGE_MANIFEST, "digest": digest, "size": 1}
            entries.append({**about, "platform": {"os": system, "architecture": machine}})
        document = {"schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": entries}
        return self.put_manifest(tag, document)

    def put_manifest(self, tag: str, document: Any) -> str:
        body = json.dumps(document).encode()
        digest = digest_of(body)
        self.manifests[digest] = self.manifests[tag] = body
        return digest

    def answer(self, request: Asked) -> Said:
        if request.path == "/token":
            auth = base64.b64encode(self.login.encode()).decode()
            if request.headers.get("authorization") != f"Basic {auth}":
                return Said(401, b"{}")
            return Said(body=json.dumps({"token": f"for {request.query['scope'][0]}"}).encode())
        match = re.fullmatch("/v2/(.+)/(manifests|blobs)/([^/]+)", request.path)
        if match is None:
            return Said(404)
        name, kind, reference = match.groups()
        token_of_name = f"Bearer for repository:{name}:pull"
        if self.login and request.headers.get("authorization") != token_of_name:
            realm = f'realm="http://{self.address}/token",service="tests"'
            return Said(401, headers={"WWW-Authenticate": f"Bearer {realm}"})
        contents = self.manifests if kind == "manifests" else self.blobs
        if reference not in contents:
            return Said(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
        body = contents[reference]
        if kind == "blobs":
            return Said(body=body)
        media = json.loads(body)["mediaType"]
        assert media in request.headers["accept"]
        return Said(body=body, headers={"Content-Type": media})


def digest_of(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def layer(
    files: Mapping[str, bytes | str | tarfile.TarInfo], *, is_compressed: bool = True
) -> bytes:
    """Return an archive of files; a text is the target of a symbolic link."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, content in files.items():
            entry = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(path)
            if isinstance(content, bytes):
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
                continue
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
            tar.addfile(entry)
    data = archive.getvalue()
    return gzip.compress(data, mtime=0) if is_compressed else data


def link(path: str, target: str, kind: bytes = tarfile.LNKTYPE) -> tarfile.TarInfo:
    """Return an entry that is a link to a file of the archive, or of another kind."""
    entry = tarfile.TarInfo(path)
    entry.type, entry.linkname = kind, target
    return entry
