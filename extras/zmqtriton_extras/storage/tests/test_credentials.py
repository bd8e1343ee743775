from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_extras.storage import credentials
from zmqtriton_extras.storage.credentials import CREDENTIALS_VARIABLE, store_options
from zmqtriton_extras.storage.places import parse_bucket_url
from zmqtriton_floor.errors import InvalidArgument

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"}
FOUND = {"access_key_id": "id", "secret_access_key": "key"}


@pytest.mark.row("F21")
@pytest.mark.parametrize(
    ("url", "variables", "expected"),
    [
        ("s3://b", {**KEYS, "AWS_DEFAULT_REGION": "eu"}, {**FOUND, "region": "eu"}),
        (
            "s3://b",
            {**KEYS, "AWS_SESSION_TOKEN": "t", "AWS_REGION": "us"},
            {**FOUND, "session_token": "t", "region": "us"},
        ),
        (
            "s3://b",
            {**KEYS, "AWS_ENDPOINT_URL": "http://minio:9000"},
            {**FOUND, "endpoint": "http://minio:9000", "region": "us-east-1"},
        ),
        (
            "s3://h:1/b",
            {**KEYS, "AWS_ENDPOINT_URL": "http://minio:9000"},
            {**FOUND, "endpoint": "http://h:1", "region": "us-east-1"},
        ),
        (
            "s3://h:1/b",
            {},
            {"endpoint": "http://h:1", "region": "us-east-1", "skip_signature": True},
        ),
        ("gs://b", {}, {}),
        (
            "gs://b",
            {"STORAGE_EMULATOR_HOST": "h:1"},
            {
                "base_url": "http://h:1",
                "skip_signature": True,
                "service_account_key": credentials._NOBODY,
            },
        ),
        (
            "as://acc/c",
            {"AZURE_STORAGE_ACCOUNT": "other", "AZURE_STORAGE_KEY": "k"},
            {"account_name": "other", "account_key": "k"},
        ),
        ("as://acc/c", {}, {"account_name": "acc", "skip_signature": True}),
        ("as://acc.blob.core.windows.net/c", {"AZURE_CLIENT_ID": "x"}, {"account_name": "acc"}),
    ],
)
def test_the_usual_variables_say_who_we_are(
    url: str, variables: dict[str, str], expected: dict[str, Any], tmp_path: Path
) -> None:
    assert expected == store_options(parse_bucket_url(url), {"HOME": str(tmp_path), **variables})


def test_google_s_file_is_named_by_its_variable_and_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(path)}
    with pytest.raises(InvalidArgument, match="cannot be read"):
        store_options(parse_bucket_url("gs://b"), variables)

    path.write_text("{}")

    assert {"application_credentials": str(path)} == store_options(
        parse_bucket_url("gs://b"), variables
    )


@pytest.mark.row("F21")
def test_in_triton_s_file_the_longest_name_that_fits_counts(tmp_path: Path) -> None:
    document = {
        "s3": {
            "": {"key_id": "any", "secret_key": "a", "region": "r"},
            "s3://bucket": {"key_id": "id", "secret_key": "key", "session_token": "t"},
        },
        "gs": {"": str(tmp_path / "credentials")},
        "as": {"as://acc/c": {"account_str": "", "account_key": "k"}},
    }
    (tmp_path / "credentials").write_text(json.dumps(document))
    variables = {CREDENTIALS_VARIABLE: str(tmp_path / "credentials"), **KEYS, "HOME": str(tmp_path)}

    assert {**FOUND, "session_token": "t"} == store_options(
        parse_bucket_url("s3://bucket/path"), variables
    )
    assert "any" == store_options(parse_bucket_url("s3://other"), variables)["access_key_id"]
    options = store_options(parse_bucket_url("gs://b"), variables)
    assert {"application_credentials": str(tmp_path / "credentials")} == options
    assert {"account_name": "acc", "account_key": "k"} == store_options(
        parse_bucket_url("as://acc/c/p"), variables
    )
    with pytest.raises(InvalidArgument, match="has no credential for as://other/c"):
        store_options(parse_bucket_url("as://other/c"), variables)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "cannot be read: No such file"),
        ("secret{", "is not JSON"),
        ('{"s3": {"": "secret"}}', "is no object of texts"),
        ('{"s3": {"": {"key_id": 7}}}', "is no object of texts"),
        ('["secret"]', "has no credential"),
    ],
)
def test_a_file_that_is_wrong_is_refused_without_its_content(
    text: str | None, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "credentials"
    if text is not None:
        path.write_text(text)

    with pytest.raises(InvalidArgument, match=reason) as raised:
        store_options(parse_bucket_url("s3://bucket"), {CREDENTIALS_VARIABLE: str(path)})

    assert "secret" not in raised.value.text


def test_what_aws_configure_has_written_is_read_by_profile(tmp_path: Path) -> None:
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(
        "[default]\naws_access_key_id = id\naws_secret_access_key = key\n"
        "[work]\naws_access_key_id = w\naws_secret_access_key = s\n"
    )
    (folder / "config").write_text("[default]\nregion = eu\n[profile work]\nregion = us\n")
    home = {"HOME": str(tmp_path)}

    assert {**FOUND, "region": "eu"} == store_options(parse_bucket_url("s3://b"), home)
    options = store_options(parse_bucket_url("s3://b"), {**home, "AWS_PROFILE": "work"})
    assert {"access_key_id": "w", "secret_access_key": "s", "region": "us"} == options
    with pytest.raises(InvalidArgument, match="no AWS profile 'nobody'"):
        store_options(parse_bucket_url("s3://b"), {**home, "AWS_PROFILE": "nobody"})
