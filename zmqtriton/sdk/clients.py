"""Values of clients: their documents, numbers and names, and threads for long work on them.

docs/guides/extending.md has the laws that these keep. Read a document with
`await read(req.hold, body, parse)`, and write one with `pieces`, in `perform` if it may be large.
Errors show `described(value)` and `shown(name)`. `number` and `integer` check what becomes a limit,
a size or a time; `in_text` reads it from a text. `Threads` do long work, and `Tasks` keep the tasks
of an owner. A file of a client is `tempfile.TemporaryFile()`, which has no name.
"""

from zmqtriton_floor.descriptions import described, shown
from zmqtriton_floor.numbers import in_text, integer, number
from zmqtriton_frontends.http_api.inference.json_documents import parse, perform, pieces, read
from zmqtriton_frontends.process.futures import Tasks
from zmqtriton_frontends.process.own_threads import Threads

__all__ = [
    "Tasks",
    "Threads",
    "described",
    "in_text",
    "integer",
    "number",
    "parse",
    "perform",
    "pieces",
    "read",
    "shown",
]
