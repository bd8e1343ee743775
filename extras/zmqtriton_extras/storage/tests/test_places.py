from __future__ import annotations

import pytest

from zmqtriton.store_places import is_remote
from zmqtriton_extras.storage.places import (
    ArtifactPath,
    HubPath,
    claim_parent,
    credentials,
    local_directory,
    parse_url,
)
from zmqtriton_floor.errors import InvalidArgument


@pytest.mark.row("F21")
@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("s3://bucket", ("s3", "bucket", "", "", "")),
        ("s3://bucket/path/to//models/", ("s3", "bucket", "path/to/models", "", "")),
        ("s3://host:9000/bucket/path", ("s3", "bucket", "path", "http://host:9000", "")),
        ("s3://http://host:9000/bucket", ("s3", "bucket", "", "http://host:9000", "")),
        ("s3://https://10.0.0.1:443/bucket/p", ("s3", "bucket", "p", "https://10.0.0.1:443", "")),
        ("s3://https://store.example/bucket/p", ("s3", "bucket", "p", "https://store.example", "")),
        ("gs://bucket/path", ("gs", "bucket", "path", "", "")),
        ("as://account/container/path", ("as", "container", "path", "", "account")),
    ],
)
def test_a_url_names_a_store_a_bucket_and_a_folder(url: str, place: tuple[str, ...]) -> None:
    assert (*place, url) == tuple(parse_url(url))
    assert is_remote(url)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("hf://org/name", ("org/name", "main", "")),
        ("hf://org/na.me-1@v2", ("org/na.me-1", "v2", "")),
        ("hf://org/name:0a1b/folder//of/models/", ("org/name", "0a1b", "folder/of/models")),
        ("hf://org/name@refs/pr/3/folder", ("org/name", "refs/pr/3", "folder")),
        ("hf://org/name/folder", ("org/name", "main", "folder")),
    ],
)
def test_a_url_names_a_repository_of_a_hub_and_its_revision(
    url: str, place: tuple[str, str, str]
) -> None:
    assert HubPath(*place, url) == parse_url(url)
    assert is_remote(url)


DIGEST = f"sha256:{'0a' * 32}"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("oci://ghcr.io/org/a/b", ("https://ghcr.io", "ghcr.io", "org/a/b", "latest")),
        ("oci://ghcr.io/m:v1.0", ("https://ghcr.io", "ghcr.io", "m", "v1.0")),
        ("oci://host:5000/m:v1@" + DIGEST, ("https://host:5000", "host:5000", "m", DIGEST)),
        ("oci://127.0.0.1:5000/m", ("http://127.0.0.1:5000", "127.0.0.1:5000", "m", "latest")),
        ("oci://localhost:5/m", ("http://localhost:5", "localhost:5", "m", "latest")),
        ("oci://http://host:5/m", ("http://host:5", "host:5", "m", "latest")),
        ("oci://docker.io/m", ("https://registry-1.docker.io", "docker.io", "library/m", "latest")),
    ],
)
def test_a_url_names_an_artifact_of_a_registry(url: str, place: tuple[str, str, str, str]) -> None:
    assert ArtifactPath(*place, url) == parse_url(url)
    assert is_remote(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///path",
        "gs://",
        "as://account",
        "s3://bucket/../other",
        "gs://b/a\nb",
        "hf://name",
        "hf://org/..",
        "hf://org/name@",
        "hf://org/name@../x",
        "hf://org/name/../x",
        "oci://host",
        "oci://host/UP",
        "oci://host/a/../b",
        "oci://host/m@sha256:0",
        "oci:///m",
    ],
)
def test_what_names_nothing_of_a_store_is_refused_with_the_form(url: str) -> None:
    with pytest.raises(InvalidArgument, match=r"is not of the form (s3|gs|as|hf|oci)://"):
        parse_url(url)


def test_credentials_are_those_of_the_kinds_in_use() -> None:
    assert "HF_TOKEN" in credentials(["hf://org/name"])
    of_registry = credentials(["oci://host/m"])
    assert ("DOCKER_AUTH_CONFIG" in of_registry, "HF_TOKEN" in of_registry) == (True, False)


@pytest.mark.parametrize("path", ["/models", "models", "s3:/bucket", "file://x", "./s3://bucket"])
def test_other_paths_are_directories(path: str) -> None:
    assert not is_remote(path)


def test_copies_go_where_the_variable_of_their_kind_says() -> None:
    variables = {"TRITON_GCS_MOUNT_DIRECTORY": "/g", "TRITON_AZURE_MOUNT_DIRECTORY": "/a"}

    assert "/g" == local_directory(["gs", "as"], variables)
    assert "" == local_directory(["s3"], variables)
    assert "/m" == claim_parent(["oci://host/m"], {"ZMQTRITON_MODEL_CACHE": "/m"})
