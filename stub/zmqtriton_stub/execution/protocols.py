"""The connection through which requests are answered, as they need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Protocol

if TYPE_CHECKING:
    from zmqtriton_stub.broker.unconfirmed_answers import UnconfirmedAnswers
    from zmqtriton_stub.execution.response_counts import ResponseCounter
    from zmqtriton_stub.instance import Instance


class BrokerLink(Protocol):
    """The connection to the broker, as seen by a request."""

    instance: Instance
    #: Nothing can be sent any more.
    is_closed: bool
    #: Every request without a final outcome, by peer and id.
    pending: dict[tuple[int, int], Any]
    #: Answers that the broker may not have passed on yet.
    answered: UnconfirmedAnswers
    #: Counts the responses of streams.
    tallies: ResponseCounter
    #: Attends to the loop's duties; for models that may be within a long execute().
    poll_while_executing: Callable[[], None]

    def send(self, message: list[bytes]) -> None: ...

    def put(self, item: Any) -> None: ...

    def postpone(self, step: Callable[[], None]) -> None: ...

    def turn(self, *, takes: bool = True) -> None: ...

    def wait(self, timeout_ms: int) -> None: ...

    def tell_tallies(self) -> None: ...
