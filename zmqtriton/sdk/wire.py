"""Names of all processes: errors, messages, tensors and their datatypes, texts and numbers.

Steps, routes, processes of add-ons and features import this. A module is imported as a whole, as
in `wire.Tensor`, and each name in use counts. A model's own Python has `zmqtriton_floor.sdk`.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

if TYPE_CHECKING:
    from zmqtriton_floor import (
        __version__ as __version__,
        arrays as arrays,
        datatypes as datatypes,
        documents as documents,
        errors as errors,
        logs as logs,
        metrics as metrics,
        numbers as numbers,
        routing as routing,
        signature as signature,
        tensors as tensors,
        wire as wire,
    )
    from zmqtriton_floor.arena import INLINE_BYTES as INLINE_BYTES
    from zmqtriton_floor.cache_keys import is_cached as is_cached
    from zmqtriton_floor.descriptions import (
        clipped as clipped,
        described as described,
        shown as shown,
    )
    from zmqtriton_floor.errors import (
        InternalError as InternalError,
        InvalidArgument as InvalidArgument,
        NotFound as NotFound,
        Unavailable as Unavailable,
        Unsupported as Unsupported,
        ZmqTritonError as ZmqTritonError,
    )
    from zmqtriton_floor.hosts import is_loopback as is_loopback
    from zmqtriton_floor.token_file import Grant as Grant
    from zmqtriton_floor.reasons import (
        ASLEEP as ASLEEP,
        AT_REST as AT_REST,
        Kind as Kind,
        Reason as Reason,
    )
else:
    __getattr__ = lazy_names(__name__)
