"""The address of a repository in a store: `--model-repository=s3://...`.

It is a bucket of an object store with a folder, a repository of a hub with a revision, or an
artifact of a registry. Handles text, but also looks for the directory and packages that are needed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zmqtriton.sdk.wire import InvalidArgument

S3, GS, AZURE, HUB, REGISTRY = "s3", "gs", "as", "hf", "oci"
_FORMS = {
    S3: "s3://bucket/path, s3://host:port/bucket/path or s3://https://host:port/bucket/path",
    GS: "gs://bucket/path",
    AZURE: "as://account/container/path",
    HUB: "hf://org/name, hf://org/name@revision or hf://org/name@revision/path",
    REGISTRY: "oci://registry/name:tag or oci://registry/name@sha256:digest",
}
_URL = re.compile(r"(s3|gs|as|hf|oci)://(.*)", re.DOTALL)
_ENDPOINT_WITH_PORT = re.compile(
    r"(?:(https?)://)?([0-9A-Za-z.\-]+|\[[0-9A-Fa-f:]+\]):([0-9]+)/(.+)"
)
_ENDPOINT_WITH_SCHEME = re.compile(r"(https?)://([0-9A-Za-z.\-]+)/(.+)")
_HUB_NAME = r"[0-9A-Za-z][0-9A-Za-z_.\-]*"
#: KServe writes the revision behind a colon. A revision with a slash is a pull request's.
_ON_HUB = re.compile(
    rf"({_HUB_NAME}/{_HUB_NAME})(?:[@:](refs/(?:pr|convert)/[^/@:]+|[^/@:]+))?(?:/(.*))?"
)
_IN_REGISTRY = re.compile(
    r"(?:(https?)://)?([0-9A-Za-z.\-]+|\[[0-9A-Fa-f:]+\])(:[0-9]+)?"
    r"/([a-z0-9]+(?:(?:\.|__?|-+|/)[a-z0-9]+)*)"
    r"(?::([0-9A-Za-z_][0-9A-Za-z_.\-]{0,127}))?(?:@(sha256:[0-9a-f]{64}))?"
)
#: Registries that are asked without TLS unless the URL says otherwise, as Docker does.
_LOOPBACK = re.compile(r"localhost|127\.[0-9.]+|\[::1\]")
#: The directory of what was fetched, and of copies: shared by all servers that have it.
CACHE_VARIABLE = "ZMQTRITON_MODEL_CACHE"
#: The variables with which users say where copies go.
_FOLDERS = {
    S3: "TRITON_AWS_MOUNT_DIRECTORY",
    GS: "TRITON_GCS_MOUNT_DIRECTORY",
    AZURE: "TRITON_AZURE_MOUNT_DIRECTORY",
    HUB: CACHE_VARIABLE,
    REGISTRY: CACHE_VARIABLE,
}
_LIBRARIES = {S3: "obstore", GS: "obstore", AZURE: "obstore", HUB: "huggingface_hub"}
#: Environment variables with credentials, by the kind of store; the server keeps them from models.
_CREDENTIALS = {
    S3: (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    ),
    GS: ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT*"),
    AZURE: (
        "AZURE_STORAGE_KEY",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_TOKEN",
        "AZURE_CLIENT_SECRET",
        "AZURE_FEDERATED_TOKEN_FILE",
    ),
    HUB: ("HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN"),
    REGISTRY: ("DOCKER_AUTH_CONFIG", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE"),
}
_CREDENTIALS_OF_BUCKETS = ("TRITON_CLOUD_CREDENTIAL_PATH",)


class BucketPath(NamedTuple):
    """The address of a folder in an object store."""

    kind: str
    #: The bucket, or Azure's container.
    bucket: str
    #: Prefix of the names in the bucket, without slashes around it; "" for the whole bucket.
    prefix: str
    #: URL of the server; "" for the provider's own.
    endpoint: str = ""
    #: Account, or host, of an Azure store; "" for other kinds.
    account: str = ""
    #: Address of the repository as the user has given it.
    url: str = ""


class HubPath(NamedTuple):
    """The address of a folder in a repository of Hugging Face's Hub, or of a server like it."""

    repository: str
    revision: str
    #: Folder in the repository; "" for the whole repository.
    folder: str
    url: str
    kind: str = HUB


class ArtifactPath(NamedTuple):
    """The address of an artifact, or an image, in a registry."""

    #: URL of the registry: scheme, host and port.
    endpoint: str
    host: str
    name: str
    #: A tag, or a digest.
    reference: str
    url: str
    kind: str = REGISTRY


Place = BucketPath | HubPath | ArtifactPath


def parse_url(url: str) -> Place:
    """Parse an address. Raises InvalidArgument."""
    match = _URL.match(url)
    kind, rest = match.groups() if match else ("", "")
    parse = {HUB: _hub_path, REGISTRY: _artifact_path}.get(kind, _bucket_path)
    place = parse(url, kind, rest)
    if place is None or not url.isprintable():
        forms = _FORMS.get(kind) or "; ".join(_FORMS.values())
        raise InvalidArgument(f"the address '{url}' must be {forms}")
    return place


def parse_bucket_url(url: str) -> BucketPath:
    """Parse an address in an object store. Raises InvalidArgument, also for another store."""
    place = parse_url(url)
    if not isinstance(place, BucketPath):
        raise InvalidArgument(f"'{url}' must be a bucket, because the server writes to it")
    return place


def _has_odd_part(*parts: str) -> bool:
    return any(part in (".", "..") for part in parts)


def _bucket_path(url: str, kind: str, rest: str) -> BucketPath | None:
    server = account = ""
    if kind == S3:
        server, rest = _split_endpoint(rest)
    elif kind == AZURE:
        account, _, rest = rest.partition("/")
    bucket, _, prefix = rest.partition("/")
    prefix = re.sub("/+", "/", prefix).strip("/")
    is_odd = _has_odd_part(bucket, *prefix.split("/"))
    if not bucket or is_odd or (kind == AZURE and not account):
        return None
    return BucketPath(kind, bucket, prefix, server, account, url)


def _split_endpoint(rest: str) -> tuple[str, str]:
    """Split off the endpoint.

    As in Triton, it is used without TLS unless the URL says otherwise.
    """
    match = _ENDPOINT_WITH_PORT.fullmatch(rest)
    if match:
        scheme, host, port, rest = match.groups()
        return f"{scheme or 'http'}://{host}:{port}", rest
    match = _ENDPOINT_WITH_SCHEME.fullmatch(rest)
    if match:
        scheme, host, rest = match.groups()
        return f"{scheme}://{host}", rest
    return "", rest


def _hub_path(url: str, kind: str, rest: str) -> HubPath | None:
    match = _ON_HUB.fullmatch(rest)
    if match is None:
        return None
    repository, revision, folder = match.groups()
    folder = re.sub("/+", "/", folder or "").strip("/")
    if _has_odd_part(revision, *folder.split("/")):
        return None
    return HubPath(repository, revision or "main", folder, url)


def _artifact_path(url: str, kind: str, rest: str) -> ArtifactPath | None:
    match = _IN_REGISTRY.fullmatch(rest)
    if match is None:
        return None
    scheme, host, port, name, tag, digest = match.groups()
    scheme = scheme or ("http" if _LOOPBACK.fullmatch(host) else "https")
    server = host
    if host == "docker.io":
        # users write neither the name of its server nor that of the usual folder
        server, name = "registry-1.docker.io", name if "/" in name else f"library/{name}"
    host = f"{host}{port or ''}"
    reference = digest or tag or "latest"
    return ArtifactPath(f"{scheme}://{server}{port or ''}", host, name, reference, url)


def claim_parent(urls: Iterable[str], variables: Mapping[str, str] = os.environ) -> str:
    """Return the parent directory for copies of these repositories.

    Raises InvalidArgument for a malformed address, and if a library is not installed.
    """
    kinds = set()
    for url in urls:
        place = parse_url(url)
        kinds.add(place.kind)
        library = _LIBRARIES.get(place.kind)
        if library and importlib.util.find_spec(library) is None:
            raise InvalidArgument(
                f"'{url}' needs the package {library}; install it with pip install {library}"
            )
    try:
        return local_directory(kinds, variables) or tempfile.gettempdir()
    except OSError as error:
        raise InvalidArgument(
            f"models of stores need a directory that can be written, see $TMPDIR: {error}"
        ) from None


def local_directory(kinds: Iterable[str], variables: Mapping[str, str] = os.environ) -> str:
    """Return the user's directory for copies from these kinds of stores; "" if none is set."""
    chosen = set(kinds)
    folders = (variables.get(name, "") for kind, name in _FOLDERS.items() if kind in chosen)
    return next(filter(None, folders), "")


def credentials(urls: Iterable[str]) -> tuple[str, ...]:
    """Return patterns of the variables that contain credentials for these repositories."""
    kinds = sorted({parse_url(url).kind for url in urls})
    of_buckets = _CREDENTIALS_OF_BUCKETS if {S3, GS, AZURE} & set(kinds) else ()
    return (*(name for kind in kinds for name in _CREDENTIALS[kind]), *of_buckets)
