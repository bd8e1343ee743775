"""Sends webhooks: each receiver has its own tries, so a slow one delays no other."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from datetime import datetime, timezone
from functools import partial

from zmqtriton.sdk.frontend import Tasks
from zmqtriton_extras.jobs.messages import OWN
from zmqtriton_extras.jobs.process.responses import describe
from zmqtriton_extras.jobs.process.store import Refused, Store
from zmqtriton_extras.jobs.process.store_thread import StoreThread
from zmqtriton_extras.jobs.process.troubles import Trouble
from zmqtriton_extras.jobs.process.webhooks.posting import Resolve, TryFailed, post, resolve
from zmqtriton_extras.jobs.process.webhooks.receivers import Allowed, NotAllowed
from zmqtriton_extras.jobs.process.webhooks.records import TRY_WITHIN_S, Webhook
from zmqtriton_extras.jobs.process.webhooks.signatures import read_secrets, sign

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
#: To one receiver.
_TRIES_AT_A_TIME = 8
#: The receiver wants no more of it.
_GONE = 410


class Sending:
    def __init__(
        self,
        store: StoreThread,
        allowed: Allowed,
        secret_file: str,
        agent: str,
        resolver: Resolve = resolve,
    ) -> None:
        self._store = store
        self._allowed = allowed
        self._secret_file = secret_file
        self._agent = agent
        self._resolver = resolver
        #: Number of tasks by receiver.
        self._workers: Counter[str] = Counter()
        self._trouble = Trouble("webhooks cannot go on", "webhooks go on again")
        self._tasks = Tasks()
        #: Tries by their end, since the process began.
        self.counts: Counter[str] = Counter()
        #: The task that looks for webhooks; none while the server leaves.
        self._looker: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._looker = self._tasks.begin(self._look())

    def leave(self) -> None:
        """Begin no more tries."""
        if self._looker is not None:
            self._looker.cancel()
        self._looker = None

    def close(self) -> None:
        """Break off running tries; the next process repeats them."""
        self._tasks.close()

    async def _look(self) -> None:
        while True:
            due = await self._store.attempt(
                lambda store: store.webhooks.due_receivers(), self._trouble
            )
            for receiver in due or ():
                for _ in range(self._workers[receiver], _TRIES_AT_A_TIME):
                    self._workers[receiver] += 1
                    self._tasks.begin(self._work(receiver))
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _work(self, receiver: str) -> None:
        try:
            while self._looker is not None:
                webhook = await self._store.attempt(
                    lambda store: store.webhooks.claim(receiver), self._trouble, receiver
                )
                if webhook is None:
                    return
                await self._try(webhook)
        finally:
            self._workers[receiver] -= 1

    async def _try(self, webhook: Webhook) -> None:
        problem: str | None = None
        status = 0
        try:
            status = await asyncio.wait_for(self._send(webhook), TRY_WITHIN_S)
            if not 200 <= status < 300:
                problem = f"the answer was {status}"
        except Refused:
            return  # the job has been removed
        except asyncio.TimeoutError:
            problem = f"no answer within {TRY_WITHIN_S:g} s"
        except (TryFailed, NotAllowed) as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - an edge: one try fails, the others go on
            _log.exception("a webhook has not been sent")
            problem = f"internal error: {error}"
        self.counts["failed" if problem else "delivered"] += 1
        is_last = status == _GONE
        await self._store.attempt(
            lambda store: store.webhooks.end_try(webhook, problem, is_last),
            self._trouble,
            webhook.job,
        )

    async def _send(self, webhook: Webhook) -> int:
        receiver = self._allowed.find(webhook.url)
        body = await self._store.do(partial(_body, webhook=webhook))
        secrets = await OWN.run(self._secrets)
        timestamp, message = int(time.time()), str(webhook.message)
        fields = {
            "User-Agent": self._agent,
            "Content-Type": "application/json",
            "webhook-id": message,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(secrets, message, timestamp, body),
        }
        return await post(receiver, self._allowed, fields, body, self._resolver)

    def _secrets(self) -> list[bytes]:
        """Read the secrets again for each try, so that they can be changed."""
        try:
            return read_secrets(self._secret_file)
        except (OSError, ValueError) as error:
            _log.error("webhooks cannot be signed: --webhook-secret-file: %s", error)
            raise TryFailed("the server cannot sign it; its log says why") from error


def _body(store: Store, webhook: Webhook) -> bytes:
    """Return the body: the job without its outputs, equal in each try."""
    job = store.find(webhook.job, None)
    ended = datetime.fromtimestamp(webhook.ended or 0.0, timezone.utc)
    document = {
        "type": f"job.{job.state}",
        "timestamp": ended.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "data": describe(job),
    }
    return json.dumps(document, separators=(",", ":")).encode()
