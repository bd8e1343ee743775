"""What a process knows of the instance that it runs; for functions of pb_utils without an object.

`current` is set once, by the loop, before the model is imported. It is None where a test imports
pb_utils without a server.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Collection

from zmqtriton_floor import wire
from zmqtriton_floor.check import Signature
from zmqtriton_stub.outbox import Outbox
from zmqtriton_stub.pb_errors import clip

if TYPE_CHECKING:
    from zmqtriton_stub.asking import Asker
    from zmqtriton_stub.memory import Memory


class Instance:
    """One model instance and the way to its supervisor."""

    def __init__(self, load: wire.Load, tell: Callable[[Any], None]) -> None:
        self.name = load.instance
        self.model = load.model
        self.version = load.version
        #: Where the model's files of this version are; the code may be elsewhere.
        self.version_directory = os.path.join(load.directory, str(load.version))
        self.is_decoupled = False
        #: Asks other models; None while this one may not, that is outside of execute().
        self.asker: Asker | None = None
        #: Where large tensors lie; None: all of them travel in messages.
        self.memory: Memory | None = None
        #: What requests must look like; None until the configuration is final.
        self.signature: Signature | None = None
        #: The names of its outputs; none until then.
        self.outputs: Collection[str] = ()
        self._outbox = Outbox(tell)

    def configure(self, config: str) -> None:
        """The configuration is final."""
        self.signature = Signature(json.loads(config))
        self.outputs = self.signature.outputs
        self.is_decoupled = self.signature.is_decoupled

    def tell(self, message: Any) -> None:
        """Sends the supervisor a message; from any thread."""
        self._outbox.put(message)

    def failure(self, text: str) -> str:
        """Triton's words for a batch that failed."""
        return f"Failed to process the request(s) for model '{self.name}', message: {text}"

    def say(self, level: str, text: str, depth: int = 1) -> None:
        """One log line, with the place of the caller `depth` frames up."""
        frame = sys._getframe(depth)
        file = os.path.basename(frame.f_code.co_filename)
        self.tell(wire.Said(level, clip(file)[:1024], frame.f_lineno, clip(text)))


current: Instance | None = None
