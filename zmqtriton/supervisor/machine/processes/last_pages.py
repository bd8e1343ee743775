"""The progress pages of the stubs that died last, for a broker that hears of their deaths late.

It reads there which requests a stub may have begun, and refuses no others. A broker that is alive
reads the page that it has mapped itself.
"""

from __future__ import annotations

import os

from zmqtriton_floor.execution_progress import has_begun

#: A broker that takes over asks for those that died with its predecessor, or since.
_MAX_PAGES = 32


class LastPages:
    def __init__(self) -> None:
        #: By serial, oldest first.
        self._pages: dict[int, int] = {}

    def keep(self, serial: int, page: int) -> bool:
        """Keep the page of a dead stub, and own its descriptor; True if that had begun a batch."""
        self._pages[serial] = page
        if len(self._pages) > _MAX_PAGES:
            os.close(self._pages.pop(next(iter(self._pages))))
        return has_begun(page)

    def find(self, serial: int) -> int | None:
        return self._pages.get(serial)

    def close(self) -> None:
        while self._pages:
            os.close(self._pages.popitem()[1])
