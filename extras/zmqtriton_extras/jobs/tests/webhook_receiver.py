"""A receiver of webhooks for tests, which knows their secret."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.receivers.post_receiver import PostReceiver

KEY = b"a secret of the test, 32 bytes .."
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"


class Post(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> str:
        return self.headers["webhook-id"]

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def is_signed(self) -> bool:
        signed = f"{self.message}.{self.headers['webhook-timestamp']}.".encode() + self.body
        digest = hmac.new(KEY, signed, hashlib.sha256).digest()
        return f"v1,{base64.b64encode(digest).decode()}" == self.headers["webhook-signature"]


class App(PostReceiver):
    """The receiver of webhooks; answers with these statuses first."""

    def __init__(self, *statuses: int) -> None:
        super().__init__("/done")
        self.posts: list[Post] = []
        self.statuses = list(statuses)

    @property
    def authority(self) -> str:
        return self.url.split("/")[2]

    def take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        status = self.statuses.pop(0) if self.statuses else self.status
        # last, since the next test begins once it is there
        self.posts.append(Post(path, headers, body))
        return status, b"{}"

    def of(self, job: str) -> list[Post]:
        return [post for post in self.posts if post.document["data"]["id"] == job]


def webhook_options(directory: Path, *allowed: str) -> list[str]:
    """Return the options of a server that may post to these receivers."""
    secret = directory / "secret"
    secret.write_text(SECRET)
    words = [f"--webhook-allow={entry}" for entry in allowed]
    return ["--jobs", *words, f"--webhook-secret-file={secret}"]
