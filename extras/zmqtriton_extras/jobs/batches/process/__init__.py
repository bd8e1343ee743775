"""Files and batches in the process of jobs."""

from zmqtriton_extras.jobs.batches.process.room import ROOM

__all__ = ["ROOM"]
