"""The address of a repository in an object store: `--model-repository=s3://...`.

A store, a bucket in it, and a folder in that. Handles text only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zmqtriton_floor.errors import InvalidArgument

S3, GS, AZURE = "s3", "gs", "as"
_FORMS = {
    S3: "s3://bucket/path, s3://host:port/bucket/path or s3://https://host:port/bucket/path",
    GS: "gs://bucket/path",
    AZURE: "as://account/container/path",
}
_REMOTE_URL = re.compile(r"(s3|gs|as)://(.*)", re.DOTALL)
_ENDPOINT_WITH_PORT = re.compile(
    r"(?:(https?)://)?([0-9A-Za-z.\-]+|\[[0-9A-Fa-f:]+\]):([0-9]+)/(.+)"
)
_ENDPOINT_WITH_SCHEME = re.compile(r"(https?)://([0-9A-Za-z.\-]+)/(.+)")
#: The variables with which Triton's users say where copies go.
_FOLDERS = (
    "TRITON_AWS_MOUNT_DIRECTORY",
    "TRITON_GCS_MOUNT_DIRECTORY",
    "TRITON_AZURE_MOUNT_DIRECTORY",
)


class BucketPath(NamedTuple):
    """The address of one repository."""

    kind: str
    #: The bucket, or Azure's container.
    bucket: str
    #: Within the bucket, without slashes around it; "" for all of it.
    prefix: str
    #: As a URL; "" for the provider's own.
    endpoint: str = ""
    #: Azure's.
    account: str = ""
    #: As it was given.
    url: str = ""


def is_remote(path: str) -> bool:
    """True if a repository is in an object store, not a directory."""
    return _REMOTE_URL.match(path) is not None


def parse_url(url: str) -> BucketPath:
    """Parse an address. Raises InvalidArgument."""
    match = _REMOTE_URL.match(url)
    kind, rest = match.groups() if match else ("", "")
    server = account = ""
    if kind == S3:
        server, rest = _split_endpoint(rest)
    elif kind == AZURE:
        account, _, rest = rest.partition("/")
    bucket, _, prefix = rest.partition("/")
    prefix = re.sub("/+", "/", prefix).strip("/")
    is_odd = any(part in (".", "..") for part in (bucket, *prefix.split("/")))
    if not bucket or is_odd or (kind == AZURE and not account) or not url.isprintable():
        forms = _FORMS.get(kind) or "; ".join(_FORMS.values())
        raise InvalidArgument(f"the model repository '{url}' is not of the form {forms}")
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


def local_directory(kinds: Iterable[str], variables: Mapping[str, str] = os.environ) -> str:
    """Return where the user wants copies of these kinds to be, or ""."""
    folder_variables = dict(zip((S3, GS, AZURE), _FOLDERS, strict=True))
    folders = (
        variables.get(name, "") for kind, name in folder_variables.items() if kind in set(kinds)
    )
    return next(filter(None, folders), "")
