"""The stub's side of the conversation with the broker."""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "between_threads": "Bell",
    "bls_client": "BlsClient",
    "unconfirmed_answers": "UnconfirmedAnswers",
}

if TYPE_CHECKING:
    from zmqtriton_stub.broker.between_threads import Bell
    from zmqtriton_stub.broker.bls_client import BlsClient
    from zmqtriton_stub.broker.unconfirmed_answers import UnconfirmedAnswers
else:
    __getattr__ = lazy_names(__name__, _NAMES)
