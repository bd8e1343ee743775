"""Repositories of Hugging Face's Hub, or of a server like it that HF_ENDPOINT names.

The only module that knows huggingface_hub, which resolves revisions, lists files and has the user's
token. The bytes are fetched here, since that library begins each interrupted file from the start.
Imported by the storage process only.
"""

from __future__ import annotations

import hashlib
import re
import threading
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import errors

from zmqtriton.sdk.wire import InternalError
from zmqtriton_extras.storage.blobs import GIT, SHA256, AddBytes, BlobCache
from zmqtriton_extras.storage.file_stores import FileStore, RemoteFile
from zmqtriton_extras.storage.places import HubPath
from zmqtriton_extras.storage.web import Unreachable, ask, content_from

_COMMIT = re.compile("[0-9a-f]{40}")
_WAIT_S = 30.0


class HubStore(FileStore):
    def __init__(self, place: HubPath, cache: BlobCache) -> None:
        super().__init__(place, cache)
        self._place = place
        self._api = huggingface_hub.HfApi(library_name="zmqtriton")
        if place.folder:
            self.FOLDERS = (place.folder,)
        #: Files of the revision, if they were listed while it was resolved.
        self._listed: list[tuple[str, int, str]] | None = None

    @property
    def name(self) -> str:
        """The last part of the repository's name, or of the folder's."""
        return (self._place.folder or self._place.repository).rpartition("/")[2]

    def _note(self, revision: str) -> str:
        server = re.sub(r"[^0-9A-Za-z.]+", "_", self._api.endpoint)
        return f"hubs/{server}/{self._place.repository}/{revision}.json"

    def _resolve(self, stop: threading.Event) -> str:
        named = self._place.revision
        if _COMMIT.fullmatch(named):
            return named
        commit, self._listed = self._ask(named)
        return commit

    def _list(self, stop: threading.Event) -> dict[str, RemoteFile]:
        listed = self._listed or self._cache.read_note(self._note(self.revision))
        if listed is None:
            _, listed = self._ask(self.revision)
        start = f"{self._place.folder}/" if self._place.folder else ""
        if not any(path.startswith(start) for path, _, _ in listed):
            raise InternalError(f"it has no folder '{self._place.folder}'; correct the address")
        return {path: RemoteFile(size, digest, path) for path, size, digest in listed}

    def _ask(self, revision: str) -> tuple[str, list[tuple[str, int, str]]]:
        """Request the commit of a revision and its files, and record them."""
        repository, server = self._place.repository, self._api.endpoint
        try:
            info = self._api.model_info(
                repository, revision=revision, files_metadata=True, timeout=_WAIT_S
            )
        except errors.OfflineModeIsEnabled:
            return self._ask_library(revision)
        except errors.RevisionNotFoundError:
            raise InternalError(
                f"{repository} has no revision '{revision}'; name a branch, a tag or a commit"
            ) from None
        except errors.HfHubHTTPError as error:
            status = error.response.status_code
            if status in (401, 403, 404):
                raise InternalError(
                    f"{server} answers {status}: there is no {repository}, or HF_TOKEN may not "
                    "read it"
                ) from None
            raise Unreachable(f"{server} answers {status}, load the model again later") from None
        except Exception as error:  # noqa: BLE001 - by version it has one of three HTTP libraries
            text = " ".join(str(error).split())[:300] or type(error).__name__
            raise Unreachable(
                f"{server} does not answer, load the model again later: {text}"
            ) from None
        files = [_listed(sibling) for sibling in info.siblings or ()]
        self._cache.write_note(self._note(str(info.sha)), files)
        return str(info.sha), files

    def _ask_library(self, revision: str) -> tuple[str, list[tuple[str, int, str]]]:
        """Return the commit and its files from the library's own cache.

        They are not recorded, because some may be missing there.
        """
        try:
            folder = Path(
                huggingface_hub.snapshot_download(
                    self._place.repository, revision=revision, local_files_only=True
                )
            )
        except errors.LocalEntryNotFoundError:
            text = f"HF_HUB_OFFLINE is set, and nothing is here of {self._place.repository}"
            raise Unreachable(text) from None
        files = []
        for path in filter(Path.is_file, folder.rglob("*")):
            # a link to a file that is named by its digest
            digest = path.resolve().name
            kind = SHA256 if len(digest) == len(hashlib.sha256().hexdigest()) else GIT
            files.append((str(path.relative_to(folder)), path.stat().st_size, f"{kind}:{digest}"))
        return folder.name, files

    def _fetch(self, file: RemoteFile, add: AddBytes, stop: threading.Event) -> Path:
        repository = self._place.repository
        if self._cache.find(file.digest, file.size) is None:
            there = huggingface_hub.try_to_load_from_cache(
                repository, file.source, revision=self.revision
            )
            if isinstance(there, str):
                adopted = self._cache.adopt(Path(there), file.digest, file.size)
                if adopted is not None:
                    add(file.size)
                    return adopted
        url = huggingface_hub.hf_hub_url(
            repository, file.source, revision=self.revision, endpoint=self._api.endpoint
        )
        token = huggingface_hub.get_token()
        authorization = f"Bearer {token}" if token else ""
        ask_with = partial(ask, url, authorization=authorization)
        return self._cache.fetch(
            file.digest, file.size, lambda at: content_from(at, ask_with), add, stop
        )


def _listed(sibling: Any) -> tuple[str, int, str]:
    """Return path, size and digest of a file; for a large one the digest is SHA-256, not git's."""
    if sibling.lfs is not None:
        return sibling.rfilename, sibling.lfs.size, f"{SHA256}:{sibling.lfs.sha256}"
    if sibling.blob_id is None or sibling.size is None:
        raise InternalError(f"the hub has no digest of {sibling.rfilename}: copy the model by hand")
    return sibling.rfilename, sibling.size, f"{GIT}:{sibling.blob_id}"
