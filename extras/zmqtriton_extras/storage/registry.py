"""Artifacts and images of registries, by the protocol of OCI's distribution specification.

A manifest names layers by their digests: archives, or single files as ORAS writes them. A tag is
resolved once; later requests use its digest. The files of layers are in the cache, and upper layers
hide lower ones; nothing is unpacked to a path that an archive names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import posixpath
import re
import subprocess
import tarfile
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from zmqtriton.sdk.wire import InternalError
from zmqtriton_extras.storage.blobs import SHA256, AddBytes, BlobCache, lock
from zmqtriton_extras.storage.file_stores import FileStore, RemoteFile
from zmqtriton_extras.storage.places import ArtifactPath
from zmqtriton_extras.storage.web import Answer, Refused, Unreachable, ask, content_from, read_all

_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MAX_MANIFEST_BYTES = 4 << 20
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_TITLE = "org.opencontainers.image.title"
_UNPACK = "io.deis.oras.content.unpack"
#: Folder of the models in KServe's images.
_FOLDER = "models"
_DOCKER, _DOCKERS_NAME = "docker.io", "https://index.docker.io/v1/"
_HELPER_WAIT_S = 30.0
FILE, FOLDER, LINK, WHITEOUT, OPAQUE = "file", "folder", "link", "whiteout", "opaque"
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_MAX_ENTRIES = 1_000_000
_MAX_HOPS = 40


class LayerEntry(NamedTuple):
    kind: str
    path: str
    size: int = 0
    #: The digest of a file, the target of a link from the root of all.
    content: str = ""


def unpack_layer(
    archive: Path, cache: BlobCache, draft: Path, stop: threading.Event
) -> list[LayerEntry]:
    """Store the files of a layer and return its entries.

    Raises InternalError for an unreadable archive, or one with a path that leads out of it.
    """
    entries: list[LayerEntry] = []
    contents: dict[str, LayerEntry] = {}
    try:
        with tarfile.open(archive, "r|*") as tar:
            for member in tar:
                entry = _entry_of(member, contents)
                if entry is None:
                    continue
                if member.isreg():
                    source = tar.extractfile(member)
                    assert source is not None
                    digest = cache.keep(source, member.size, draft, stop)
                    entry = entry._replace(size=member.size, content=digest)
                contents[entry.path] = entry
                entries.append(entry)
                if len(entries) > _MAX_ENTRIES:
                    raise InternalError(f"a layer can have at most {_MAX_ENTRIES} entries")
    except (tarfile.TarError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InternalError(f"a layer must be a tar archive: {error}") from None
    return entries


def _entry_of(member: tarfile.TarInfo, contents: dict[str, LayerEntry]) -> LayerEntry | None:
    path = clean(member.name)
    folder, name = posixpath.split(path)
    if member.isdir():
        # an empty one may be a version
        return LayerEntry(FOLDER, path) if name.isdecimal() else None
    if name == _OPAQUE:
        return LayerEntry(OPAQUE, folder)
    if name.startswith(_WHITEOUT):
        return LayerEntry(WHITEOUT, posixpath.join(folder, name[len(_WHITEOUT) :]))
    if member.islnk():
        target = clean(member.linkname)
        there = contents.get(target)
        return there._replace(path=path) if there else LayerEntry(LINK, path, 0, target)
    if member.issym():
        return LayerEntry(LINK, path, 0, posixpath.join("/", folder, member.linkname))
    if not member.isreg():
        return None  # a device or a pipe of an image; no model has one
    return LayerEntry(FILE, path)


def clean(path: str) -> str:
    """Return a path of an archive from its root. Raises InternalError for one that leads out."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InternalError(
            f"a layer has the path {path[:200]!r}, which leads out of it: build the image again"
        )
    return "/".join(parts)


def merge_layers(layers: Iterable[Sequence[LayerEntry]]) -> dict[str, RemoteFile]:
    """Return the files by path, after upper layers have replaced and removed lower ones."""
    merged: dict[str, LayerEntry] = {}
    for entries in layers:
        for kind, path, _, _ in entries:
            if kind in (WHITEOUT, OPAQUE):
                _remove(merged, path, is_whole=kind == WHITEOUT)
        for entry in entries:
            if entry.kind == FOLDER:
                merged.setdefault(entry.path, entry)
            elif entry.kind in (FILE, LINK):
                if entry.path not in merged:
                    _remove(merged, entry.path, is_whole=False)
                merged[entry.path] = entry
    return {path: _resolve(path, merged) for path in merged}


def _remove(merged: dict[str, LayerEntry], path: str, *, is_whole: bool) -> None:
    start = f"{path}/" if path else ""
    for name in [n for n in merged if n.startswith(start) or (is_whole and n == path)]:
        del merged[name]


def _resolve(path: str, merged: dict[str, LayerEntry]) -> RemoteFile:
    entry = merged[path]
    for _ in range(_MAX_HOPS):
        if entry.kind in (FILE, FOLDER):
            return RemoteFile(entry.size, entry.content, entry.path)
        target = posixpath.normpath(f"/{entry.content}").lstrip("/")
        if target not in merged or merged[target].kind == FOLDER:
            break
        entry = merged[target]
    return RemoteFile(0, "", path, "a link that leads to no file of it")


class RegistryStore(FileStore):
    FOLDERS = (_FOLDER,)

    def __init__(self, place: ArtifactPath, cache: BlobCache) -> None:
        super().__init__(place, cache)
        self._place = place
        self._client = RegistryClient(place)

    @property
    def name(self) -> str:
        """The last part of the repository's name."""
        return self._place.name.rpartition("/")[2]

    def _resolve(self, stop: threading.Event) -> str:
        reference = self._place.reference
        return reference if _DIGEST.fullmatch(reference) else self._manifest(reference)[0]

    def _manifest(self, reference: str) -> tuple[str, dict[str, Any]]:
        """Return the digest and the document of a manifest or index."""
        note = f"manifests/{reference.replace(':', '/')}.json"
        kept = self._cache.read_note(note) if _DIGEST.fullmatch(reference) else None
        if kept is not None:
            return reference, kept
        said = self._client.open(f"manifests/{reference}", {"Accept": ", ".join(_MANIFESTS)})
        body = read_all(said, _MAX_MANIFEST_BYTES)
        digest = f"{SHA256}:{hashlib.sha256(body).hexdigest()}"
        expected = said.headers.get("Docker-Content-Digest", digest)
        if digest != (reference if _DIGEST.fullmatch(reference) else expected):
            raise InternalError(f"its manifest has another digest, {digest}: correct the address")
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise InternalError("its manifest must be a JSON object: push it again")
        self._cache.write_note(f"manifests/{digest.replace(':', '/')}.json", document)
        return digest, document

    def _list(self, stop: threading.Event) -> dict[str, RemoteFile]:
        _, document = self._manifest(self.revision)
        if "manifests" in document:
            _, document = self._manifest(_of_this_machine(document["manifests"]))
        if not isinstance(document.get("layers"), list):
            raise InternalError("its manifest has no layers: push it again")
        return merge_layers(self._entries(layer, stop) for layer in document["layers"])

    def _entries(self, layer: Mapping[str, Any], stop: threading.Event) -> list[LayerEntry]:
        digest, size = str(layer.get("digest")), layer.get("size")
        if not _DIGEST.fullmatch(digest) or not isinstance(size, int):
            raise InternalError(
                f"push it again: its manifest has a layer of the digest '{digest[:100]}'"
            )
        annotations = layer.get("annotations") or {}
        title = annotations.get(_TITLE, "")
        if title and annotations.get(_UNPACK) != "true":
            return [LayerEntry(FILE, clean(title), size, digest)]
        note = self._cache.root / "layers" / f"{digest.partition(':')[2]}.json"
        note.parent.mkdir(parents=True, exist_ok=True)
        with open(note.with_suffix(".lock"), "ab") as file:
            lock(file, stop)
            kept = self._cache.read_note(f"layers/{note.name}")
            entries = [LayerEntry(*entry) for entry in kept or ()]
            here = (self._cache.find(e.content, e.size) for e in entries if e.kind == FILE)
            if kept is None or not all(here):
                archive = self._blob(digest, size, lambda count: None, stop)
                entries = unpack_layer(archive, self._cache, note.with_suffix(".draft"), stop)
                self._cache.write_note(f"layers/{note.name}", entries)
                archive.unlink()
        return entries

    def _blob(self, digest: str, size: int, add: AddBytes, stop: threading.Event) -> Path:
        ask_with = partial(self._client.open, f"blobs/{digest}")
        return self._cache.fetch(digest, size, lambda at: content_from(at, ask_with), add, stop)

    def _fetch(self, file: RemoteFile, add: AddBytes, stop: threading.Event) -> Path:
        return self._blob(file.digest, file.size, add, stop)


def _of_this_machine(manifests: list[dict[str, Any]]) -> str:
    """Return the digest of the manifest for this machine, or of a manifest for all machines."""
    machine = platform.machine()
    own = ("linux", _MACHINES.get(machine, machine))
    platforms = [each.get("platform") or {} for each in manifests]
    names = [(each.get("os"), each.get("architecture")) for each in platforms]
    # images have notes about their making beside them
    real = [name for name in names if name != ("unknown", "unknown")]
    # models are mostly the same for all machines
    chosen = next((name for name in (own, (None, None)) if name in real), None)
    if chosen is None and len(real) == 1:
        (chosen,) = real
    if chosen is not None:
        digest = str(manifests[names.index(chosen)].get("digest"))
        if _DIGEST.fullmatch(digest):
            return digest
    others = ", ".join(f"{system}/{machine}" for system, machine in real)
    raise InternalError(f"it is for {others or 'no machine'}: build it for {'/'.join(own)}")


class RegistryClient:
    """Client of one repository in a registry; gets a token if the registry requires one."""

    def __init__(self, place: ArtifactPath) -> None:
        self._place = place
        self._authorization = ""

    def open(self, path: str, headers: Mapping[str, str]) -> Answer:
        """Send a request. Raises an InternalError that names the question."""
        url = f"{self._place.endpoint}/v2/{self._place.name}/{path}"
        try:
            try:
                return ask(url, headers, authorization=self._authorization)
            except Refused as refusal:
                if refusal.status != 401:
                    raise
                self._authorization = self._answer(refusal.headers)
                return ask(url, headers, authorization=self._authorization)
        except Refused as refusal:
            if refusal.status == 404:
                missing = path.rpartition("/")[2]
                raise InternalError(
                    f"{self._place.host} has no {missing} of {self._place.name}; correct the "
                    "address"
                ) from None
            may_help = refusal.status in (401, 403)
            advice = f"; log in with `docker login {self._place.host}`" if may_help else ""
            raise InternalError(
                f"{self._place.host} refuses {path}: {refusal.text}{advice}"
            ) from None
        except Unreachable as error:
            raise Unreachable(
                f"{self._place.host} does not answer, load the model again later: {error.text}"
            ) from None

    def _answer(self, headers: Any) -> str:
        """Return the `Authorization` for the registry's challenge; "" without a challenge."""
        login = _login(self._place.host)
        for challenge in headers.get_all("WWW-Authenticate") or ():
            scheme, _, rest = challenge.partition(" ")
            fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
            if scheme.lower() == "basic" and login:
                return login
            if scheme.lower() == "bearer" and "realm" in fields:
                return self.token(fields.pop("realm"), fields, login)
        return ""

    def token(self, realm: str, fields: Mapping[str, str], login: str) -> str:
        """Return the token that the server at `realm` issues for a login. Raises Refused."""
        if urlsplit(self._place.endpoint).scheme == "https" != urlsplit(realm).scheme:
            raise Refused(
                f"its login at {realm} is not encrypted: use a registry with HTTPS", 401, {}
            )
        question = {"service": fields.get("service", ""), "scope": fields.get("scope", "")}
        if not question["scope"]:
            question["scope"] = f"repository:{self._place.name}:pull"
        mark = "&" if "?" in realm else "?"
        said = ask(f"{realm}{mark}{urlencode(question)}", {}, authorization=login)
        try:
            answer = json.loads(read_all(said, _MAX_MANIFEST_BYTES))
            token = answer.get("token") or answer["access_token"]
        except (ValueError, KeyError, AttributeError):
            raise Refused("its response to the login has no token; log in again", 401, {}) from None
        return f"Bearer {token}"


# ---------------------------------------------------------------------- logins


def _login(host: str) -> str:
    """Return the user's login as stored by Docker or Podman, for basic authorization, or ""."""
    names = [host, f"https://{host}", *([_DOCKERS_NAME] if host == _DOCKER else [])]
    for document in _documents():
        helpers = document.get("credHelpers") or {}
        for name in names:
            entry = (document.get("auths") or {}).get(name) or {}
            helper = helpers.get(name) or document.get("credsStore")
            if entry.get("auth"):
                return f"Basic {entry['auth']}"
            if helper and re.fullmatch(r"[0-9A-Za-z_.\-]+", helper):
                login = _ask_helper(helper, name)
                if login:
                    return login
    return ""


def _documents() -> Iterator[dict[str, Any]]:
    texts = [os.environ.get("DOCKER_AUTH_CONFIG", "")]
    home = os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")
    paths = [
        os.environ.get("REGISTRY_AUTH_FILE", ""),
        os.path.join(home, "config.json"),
        os.path.join(os.environ.get("XDG_RUNTIME_DIR", ""), "containers", "auth.json"),
    ]
    for path in filter(os.path.isfile, paths):
        try:
            texts.append(Path(path).read_text("utf-8"))
        except OSError as error:
            raise Refused(
                f"{path} cannot be read, check its rights: {error.strerror}", 401, {}
            ) from None
    for text in filter(None, texts):
        try:
            document = json.loads(text)
        except ValueError:
            continue  # without a login the registry says what is missing
        if isinstance(document, dict):
            yield document


def _ask_helper(helper: str, name: str) -> str:
    """Ask a credential helper of Docker for a login."""
    try:
        done = subprocess.run(
            [f"docker-credential-{helper}", "get"],
            input=name.encode(),
            capture_output=True,
            timeout=_HELPER_WAIT_S,
            check=True,
        )
        login = json.loads(done.stdout)
        pair = f"{login['Username']}:{login['Secret']}"
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return ""  # it has none for this registry
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
