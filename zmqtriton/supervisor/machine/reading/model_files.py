"""The files of models as the service uses them: its repositories, what loads read, the readers."""

from __future__ import annotations

import selectors
from collections.abc import Sequence
from functools import partial

from zmqtriton.options import Options
from zmqtriton.supervisor.machine.model_reading import ModelReader, host_of
from zmqtriton.supervisor.machine.reading.gathering import Clock
from zmqtriton.supervisor.machine.reading.model_lookups import ModelLookups
from zmqtriton.supervisor.machine.reading.reader_process import start_reader
from zmqtriton.supervisor.machine.reading.readers import Readers
from zmqtriton.supervisor.machine.reading.repositories import Repositories
from zmqtriton.supervisor.machine.reading.tasks import ReaderTasks

#: Readers have nothing to lose; one that cannot be killed must not hold up the server's end.
_END_WITHIN_S = 0.5


class ModelFiles:
    def __init__(
        self,
        options: Options,
        gpus: Sequence[int],
        selector: selectors.BaseSelector,
        call_later: Clock,
        pids: set[int],
    ) -> None:
        """Set up, in the loop of the selector; `pids` get those of the readers."""
        start = partial(start_reader, ReaderTasks(ModelReader(options, gpus)))
        self.readers = Readers(selector, start, call_later, pids)
        self.repositories = Repositories(options, self.readers, call_later)
        host = host_of(options, gpus)
        self.lookups = ModelLookups(self.repositories, self.readers, call_later, host)

    def close(self) -> None:
        self.readers.close(_END_WITHIN_S)
