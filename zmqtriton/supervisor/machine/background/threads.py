"""The threads of the supervisor."""

from __future__ import annotations

import selectors

from zmqtriton.supervisor.core import Core
from zmqtriton.supervisor.machine.background.file_looks import FileLooks
from zmqtriton.supervisor.machine.background.memory_gauge import MemoryGauge


class Background:
    """The parts that have a thread each, once they are asked."""

    def __init__(self, selector: selectors.BaseSelector, core: Core) -> None:
        self.gauge = MemoryGauge(selector, core.measurements.on_measured)
        self.file_looks = FileLooks(selector, core.reloader.on_looked)

    def close(self) -> None:
        self.gauge.close()
        self.file_looks.close()
