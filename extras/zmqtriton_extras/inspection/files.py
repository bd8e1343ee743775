"""The file formats of a profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from zmqtriton_extras.inspection import flame_graph, formats
from zmqtriton_extras.inspection.profile import Profile


class File(NamedTuple):
    #: The end of its name.
    end: str
    media: str
    write: Callable[[Profile], bytes]


BY_FORM = {
    "svg": File(".svg", "image/svg+xml", flame_graph.draw),
    "speedscope": File(".speedscope.json", "application/json", formats.speedscope),
    "pprof": File(".pb.gz", "application/gzip", formats.pprof),
}
