"""The right to do the loop's duties: which thread may read the lifeline and change the broker.

The loop's thread has it, and lends it while code of the model runs. In execute() that thread does
the duties whenever it waits for something of ours: a reply, room in a stream, an answer of the
supervisor. It may as well wait for something of the model's own, the end of a thread for one, that
waits for something of ours. Then nothing comes any more once the broker has died: of the next one
only the lifeline tells. So any thread that waits for something of ours does the duties, as soon as
the lifeline has a message, if the right is to be had. No thread waits for it but the loop's, at the
end of the model's code: a thread that finds it taken has nothing to do, since the one that has it
comes to everything that was there when it began, and descriptors tell of the rest.

So the loop's own steps between two executions see one broker from beginning to end. The right comes
first in the order of locks: then those of metrics, of the connection to the broker or of calls, of
responses. A thread that holds one of these takes the right only if it is free.
"""

from __future__ import annotations

import threading


class LoopDuties:
    """The right to do the loop's duties of one instance.

    Methods of the lock are its own: each request lends the right, and enters no function for it.
    """

    def __init__(self) -> None:
        # a destructor may wait for a reply amid the loop's own steps
        right = threading.RLock()
        #: Takes the right; the loop's thread may have to wait until another one is done.
        self.claim = right.acquire
        #: Gives the right back, once for each time that it was taken.
        self.give_back = right.release

    def take(self) -> bool:
        """Take the right if it is free, without waiting; return True if it was taken."""
        return self.claim(blocking=False)
