"""An object store as far as this server needs it: contents of folders, parts of objects.

The only module that knows obstore, whose interface still changes. Imported by the storage process
only, since it is an extra (`zmqtriton[cloud]`).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from typing import Any

import obstore
from obstore.exceptions import BaseError, InvalidPathError
from obstore.store import AzureStore, GCSStore, S3Store

from zmqtriton.sdk.wire import InternalError, InvalidArgument
from zmqtriton_extras.storage.credentials import store_options
from zmqtriton_extras.storage.places import AZURE, GS, S3, BucketPath
from zmqtriton_extras.storage.trees import InvalidObjectName, StoredObject

#: Limit for a response with its whole body; parts are small enough for a slow line.
_ANSWER_WITHIN = timedelta(seconds=120)
_CLIENTS: Mapping[str, Callable[..., Any]] = {AZURE: AzureStore, GS: GCSStore, S3: S3Store}
_CONNECT_WITHIN = timedelta(seconds=5)
_RETRIES = 3
_RETRY_WITHIN = timedelta(seconds=30)
#: Maximum number of objects in a listing: no model repository has more, and they take memory.
_MAX_OBJECTS = 1_000_000
_PAGE = 1000


class ObjectStore:
    """One repository. Every method raises an InternalError with its name and the failure."""

    def __init__(self, place: BucketPath) -> None:
        """Open without connecting. Raises InvalidArgument if the credentials are of no use."""
        self._bucket_path = place
        self._prefix = f"{place.prefix}/" if place.prefix else ""
        self._client = self._open(store_options(place))

    def _open(self, options: dict[str, Any]) -> Any:
        place = self._bucket_path
        how = {
            "client_options": {
                "timeout": _ANSWER_WITHIN,
                "connect_timeout": _CONNECT_WITHIN,
                "allow_http": True,
            },
            "retry_config": {"max_retries": _RETRIES, "retry_timeout": _RETRY_WITHIN},
        }
        try:
            return _CLIENTS[place.kind](place.bucket, **options, **how)
        except (BaseError, ValueError) as error:
            raise InvalidArgument(
                f"{place.url} cannot be opened, check address and credentials: {_summarize(error)}"
            ) from None

    async def list_objects(self, folder: str = "") -> list[StoredObject]:
        """List all objects in a folder of the repository and below, by path.

        Raises InvalidObjectName.
        """
        start = f"{self._prefix}{folder}/" if folder else self._prefix
        objects: list[StoredObject] = []
        async for item in self._list_pages(start):
            path = str(item["path"])
            if path.startswith(start) and len(path) > len(start):
                tag = str(item.get("e_tag") or "")
                changed = item["last_modified"]
                objects.append(StoredObject(path[len(start) :], int(item["size"]), tag, changed))
            if len(objects) > _MAX_OBJECTS:
                raise InternalError(
                    f"{self._bucket_path.url} can have at most {_MAX_OBJECTS} objects"
                )
        return sorted(objects)

    async def _list_pages(self, start: str) -> AsyncIterator[Any]:
        try:
            async for page in obstore.list(self._client, start or None, chunk_size=_PAGE):
                for item in page:
                    yield item
        except InvalidPathError as error:
            raise InvalidObjectName(
                f"{self._bucket_path.url} has an object to rename, with "
                f"{_describe_invalid_name(error)}"
            ) from None
        except (BaseError, OSError) as error:
            raise self._failure("listed", error) from None

    async def list_folders(self) -> list[str]:
        """List the folders directly in the repository that are not empty.

        Raises InvalidObjectName.
        """
        try:
            listing = await obstore.list_with_delimiter_async(self._client, self._prefix or None)
        except InvalidPathError as error:
            raise InvalidObjectName(
                f"{self._bucket_path.url} has an object to rename, with "
                f"{_describe_invalid_name(error)}"
            ) from None
        except (BaseError, OSError) as error:
            raise self._failure("listed", error) from None
        return sorted(str(path).rpartition("/")[2] for path in listing["common_prefixes"])

    async def read_range(self, path: str, start: int, end: int) -> tuple[memoryview, str]:
        """Return a part of one object, and the tag of the object."""
        try:
            answer = await obstore.get_async(
                self._client, f"{self._prefix}{path}", options={"range": (start, end)}
            )
            data = memoryview(await answer.bytes_async())
        except (BaseError, OSError) as error:
            raise self._failure(f"read at {path}", error) from None
        return data, str(answer.meta.get("e_tag") or "")

    def put(self, path: str, content: bytes) -> None:
        """Write an object, and wait for the end; blocks, so call this in a thread."""
        try:
            obstore.put(self._client, f"{self._prefix}{path}", content)
        except (BaseError, OSError) as error:
            raise self._failure(f"written at {path}", error) from None

    def _failure(self, what: str, error: Exception) -> InternalError:
        return InternalError(
            f"{self._bucket_path.url} cannot be {what}: {_summarize(error)}; check URL and rights"
        )


def _describe_invalid_name(error: Exception) -> str:
    """Return the invalid name, if the library's error shows it."""
    path = re.search(r'Error parsing Path "(.*?)":', str(error), re.DOTALL)
    if path is None:
        return "a name that cannot be a path"
    return f"the name {path.group(1)[:200]!r}, which cannot be a path here"


def _summarize(error: Exception) -> str:
    """Return the store's message in one line, without the library's own state."""
    text = str(error).partition("\n\nDebug source")[0]
    code = re.search(r"<Code>(.*?)</Code>", text)
    message = re.search(r"<Message>(.*?)</Message>", text, re.DOTALL)
    if code:
        text = code.group(1) + (f": {message.group(1)}" if message else "")
    else:
        text = re.sub(r"^.*?(?=Error performing (?:GET|HEAD|PUT|POST))", "", text, flags=re.DOTALL)
        text = re.sub(r" in \d[\d.]*[mnµ]?s, after \d+ retries.*? - ", ": ", text)
        text = re.sub(r"\?\S*", "", text)
    return " ".join(text.split())[:500] or type(error).__name__
