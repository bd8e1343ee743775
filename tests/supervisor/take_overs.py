"""Two supervisors without processes, one of which takes over from the other."""

from __future__ import annotations

from tests.supervisor.world import SupervisorHarness


class TakeOver:
    """Two servers, one of which takes over from the other, and what they say to each other."""

    def __init__(self, old: SupervisorHarness, new: SupervisorHarness) -> None:
        """Begin: the old one runs from here on, if it does not yet."""
        self.old, self.new = old, new
        self._read = {"old": 0, "new": 0}
        #: How each is known to the other.
        self._next = self.old.core.plan.new_serial()
        self._before = self.new.core.plan.new_serial()
        if not old.alive:
            old.start()
        self.old.call_as(self._next, "succession.sockets")
        self.new.core.events.succession.follow(self._before)

    def start(self) -> None:
        """Start the new server as far as it comes before it hears anything."""
        self.new.start()

    def run(self) -> None:
        """Start the new server, and let both say all that they have to."""
        self.start()
        self.exchange()

    def exchange(self) -> None:
        """Until neither says anything more."""
        is_over = False
        while not is_over:
            self.new.tick()
            moved = [
                self._move("old", self.old, self._next, self.new, self._before),
                self._move("new", self.new, self._before, self.old, self._next),
            ]
            is_over = not any(moved)

    def hear(self) -> None:
        """Let the old server hear what the new one has said so far, and no more."""
        self._move("new", self.new, self._before, self.old, self._next)

    def _move(
        self,
        name: str,
        sender: SupervisorHarness,
        receiver_there: int,
        receiver: SupervisorHarness,
        sender_here: int,
    ) -> bool:
        said = [m for serial, m in sender.sent if serial == receiver_there]
        new = said[self._read[name] :]
        self._read[name] = len(said)
        for message in new:
            receiver.receive(sender_here, message)
        return bool(new)

    def end_new(self) -> None:
        self.old.core.events.caller_ended(self._next)
        self.old.run_until_idle()

    def end_old(self) -> None:
        self.new.core.events.caller_ended(self._before)
        self.new.run_until_idle()
