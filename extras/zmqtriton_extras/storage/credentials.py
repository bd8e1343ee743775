"""Credentials for an object store: Triton's credentials file, or the provider's own variables.

Returns the options for opening the store. Reads small files; no error text holds a secret.
"""

from __future__ import annotations

import configparser
import json
import os
from collections.abc import Mapping
from typing import Any

from zmqtriton.sdk.wire import InvalidArgument
from zmqtriton_extras.storage.places import AZURE, GS, S3, BucketPath

#: Names Triton's file, with credentials by kind and by the beginning of the URL.
CREDENTIALS_VARIABLE = "TRITON_CLOUD_CREDENTIAL_PATH"

EnvironmentVariables = Mapping[str, str]


def store_options(
    place: BucketPath, variables: EnvironmentVariables = os.environ
) -> dict[str, Any]:
    """Return the options for opening the store. Raises InvalidArgument."""
    path = variables.get(CREDENTIALS_VARIABLE, "")
    entry = _entry(path, place) if path else None
    return {S3: _s3_options, GS: _gs_options, AZURE: _azure_options}[place.kind](
        place, entry, variables
    )


def _entry(path: str, place: BucketPath) -> Any:
    """Return the entry with the longest name that the URL begins with."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise InvalidArgument(
            f"{CREDENTIALS_VARIABLE}: {path} cannot be read, check its rights: {error.strerror}"
        ) from error
    except ValueError:
        raise InvalidArgument(f"{CREDENTIALS_VARIABLE}: {path} must be JSON") from None
    entries = document.get(place.kind, {}) if isinstance(document, dict) else {}
    names = [n for n in entries if place.url.startswith(n)] if isinstance(entries, dict) else []
    if not names:
        raise InvalidArgument(
            f"{CREDENTIALS_VARIABLE}: {path} has no credential for {place.url}; add one"
        )
    return entries[max(names, key=len)]


def _require_texts(entry: Any, place: BucketPath) -> dict[str, str]:
    if not isinstance(entry, dict) or not all(isinstance(v, str) for v in entry.values()):
        raise InvalidArgument(
            f"{CREDENTIALS_VARIABLE}: the credential for {place.url} must be an object of texts"
        )
    return entry


# ---------------------------------------------------------------------- S3


def _s3_options(place: BucketPath, entry: Any, variables: EnvironmentVariables) -> dict[str, Any]:
    options = _s3_keys(_require_texts(entry, place), variables) if entry is not None else {}
    if entry is None:
        options = _s3_variables(variables) or _s3_profile(
            variables.get("AWS_PROFILE", ""), variables
        )
        region = variables.get("AWS_DEFAULT_REGION") or variables.get("AWS_REGION")
        options["region"] = region or options.get("region", "")
    server = place.endpoint or _s3_endpoint(variables)
    if server:
        options["endpoint"] = server
        if not options.get("region"):
            # servers of one's own have none, and a signature needs one
            options["region"] = "us-east-1"
        if not _has_identity(options, variables):
            options["skip_signature"] = True
    return {name: value for name, value in options.items() if value}


def _s3_endpoint(variables: EnvironmentVariables) -> str:
    named = variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL", "")
    return "" if variables.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") == "true" else named


def _has_identity(options: Mapping[str, Any], variables: EnvironmentVariables) -> bool:
    """True if an identity is configured.

    Without one a machine's or container's role may provide an identity.
    """
    roles = (
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    )
    return bool(options.get("access_key_id")) or any(variables.get(name) for name in roles)


def _s3_variables(variables: EnvironmentVariables) -> dict[str, Any]:
    if not variables.get("AWS_ACCESS_KEY_ID"):
        return {}
    return {
        "access_key_id": variables["AWS_ACCESS_KEY_ID"],
        "secret_access_key": variables.get("AWS_SECRET_ACCESS_KEY", ""),
        "session_token": variables.get("AWS_SESSION_TOKEN", ""),
    }


def _s3_keys(entry: Mapping[str, str], variables: EnvironmentVariables) -> dict[str, Any]:
    """Return the options of an entry in Triton's file, whose unused fields are empty."""
    if entry.get("key_id"):
        options: dict[str, Any] = {
            "access_key_id": entry["key_id"],
            "secret_access_key": entry.get("secret_key", ""),
            "session_token": entry.get("session_token", ""),
        }
    else:
        options = _s3_profile(entry.get("profile", ""), variables)
    options["region"] = entry.get("region") or options.get("region", "")
    return options


def _s3_profile(name: str, variables: EnvironmentVariables) -> dict[str, Any]:
    """Return keys and region of a profile of `aws configure`; "" is the default profile."""
    home = os.path.join(variables.get("HOME", "/"), ".aws")
    keys = _section(variables.get("AWS_SHARED_CREDENTIALS_FILE", f"{home}/credentials"), name)
    merged = {**_section(variables.get("AWS_CONFIG_FILE", f"{home}/config"), name), **keys}
    if name and not merged:
        raise InvalidArgument(f"there is no AWS profile '{name}'; run aws configure")
    return {
        "access_key_id": merged.get("aws_access_key_id", ""),
        "secret_access_key": merged.get("aws_secret_access_key", ""),
        "session_token": merged.get("aws_session_token", ""),
        "region": merged.get("region", ""),
    }


def _section(path: str, name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"{path} cannot be read, correct it: {type(error).__name__}"
        ) from None
    sections = filter(parser.has_section, (f"profile {name}", name) if name else ("default",))
    return next((dict(parser.items(section)) for section in sections), {})


# ------------------------------------------------------------- the others


#: Key without content for an emulator or a server of the user's own. Without any key the client
#: would ask Google for a token that allows to write.
_NOBODY = json.dumps(
    {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
)


def _gs_options(place: BucketPath, entry: Any, variables: EnvironmentVariables) -> dict[str, Any]:
    if entry is not None and not isinstance(entry, str):
        raise InvalidArgument(
            f"{CREDENTIALS_VARIABLE}: the credential for {place.url} must be a path"
        )
    options: dict[str, Any] = {}
    server = variables.get("STORAGE_EMULATOR_HOST", "")
    if server:
        options["base_url"] = server if "://" in server else f"http://{server}"
    path = variables.get("GOOGLE_APPLICATION_CREDENTIALS", "") if entry is None else entry
    if path and not os.access(path, os.R_OK):
        raise InvalidArgument(
            f"the Google credentials '{path}' cannot be read; check path and permissions"
        )
    if path:
        options["application_credentials"] = path
    elif server:
        options.update(skip_signature=True, service_account_key=_NOBODY)
    return options


#: Other ways to identify oneself, which the store's client reads by itself.
_AZURE_IDENTITY_VARIABLES = (
    "AZURE_CLIENT_ID",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN",
    "AZURE_FEDERATED_TOKEN_FILE",
    "IDENTITY_ENDPOINT",
)


def _azure_options(
    place: BucketPath, entry: Any, variables: EnvironmentVariables
) -> dict[str, Any]:
    if entry is not None:
        texts = _require_texts(entry, place)
        named, key = texts.get("account_str", ""), texts.get("account_key", "")
    else:
        named = variables.get("AZURE_STORAGE_ACCOUNT", "")
        key = variables.get("AZURE_STORAGE_KEY", "")
    # The URL may name the account by its host; the name of the credential is used otherwise.
    account, _, host = place.account.partition(".")
    options: dict[str, Any] = {"account_name": named or account}
    if host and not host.startswith("blob.core.windows.net"):
        options["endpoint"] = f"https://{place.account}"
    if key:
        options["account_key"] = key
    elif not any(variables.get(name) for name in _AZURE_IDENTITY_VARIABLES):
        options["skip_signature"] = True
    return options
