"""One number that two processes share."""

from __future__ import annotations

import os
import signal
import tempfile

from zmqtriton_floor.progress import SIZE, Progress


def test_what_a_killed_process_wrote_last_is_read_by_the_other() -> None:
    with tempfile.TemporaryFile() as page:
        page.truncate(SIZE)
        ours = Progress(page.fileno())
        assert 0 == ours.last_begun_batch

        pid = os.fork()
        if pid == 0:
            theirs = Progress(page.fileno())
            for number in (1, 2, 2**40):
                theirs.begin(number)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)

        assert 2**40 == ours.last_begun_batch
        ours.close()
