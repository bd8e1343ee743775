from __future__ import annotations

import pytest

from zmqtriton.store_places import is_remote, local_directory, parse_url
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
    "url",
    ["s3://", "s3:///path", "gs://", "as://account", "s3://bucket/../other", "gs://b/a\nb"],
)
def test_what_names_no_bucket_is_refused_with_the_form(url: str) -> None:
    with pytest.raises(InvalidArgument, match=r"is not of the form (s3|gs|as)://"):
        parse_url(url)


@pytest.mark.parametrize("path", ["/models", "models", "s3:/bucket", "file://x", "./s3://bucket"])
def test_other_paths_are_directories(path: str) -> None:
    assert not is_remote(path)


def test_copies_go_where_the_variable_of_their_kind_says() -> None:
    variables = {"TRITON_GCS_MOUNT_DIRECTORY": "/g", "TRITON_AZURE_MOUNT_DIRECTORY": "/a"}

    assert "/g" == local_directory(["gs", "as"], variables)
    assert "" == local_directory(["s3"], variables)
