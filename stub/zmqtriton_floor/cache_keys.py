"""What a request is looked up by in the response cache: made where the bytes of its inputs are.

Used by frontends and stubs for what they ask; the broker compares keys and sees no tensor. Equal
keys mean equal model inputs and outputs asked for: 256 bits, under a secret of this server's run.
"""

from __future__ import annotations

import hashlib
from typing import Any, Iterable, Sequence

from zmqtriton_floor.memory import INLINE_BYTES
from zmqtriton_floor.wire import RequestBody, Tensor

KEY_BYTES = 32


class Keys:
    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of(self, body: RequestBody) -> bytes:
        """For a request that is all in its message, else none: its large tensors are being placed,
        and who does that has their bytes."""
        for tensor in body.inputs:
            if len(tensor.data) > INLINE_BYTES:
                return b""
        return self.of_parts(body.outputs, [self.of_tensor(t, t.data) for t in body.inputs])

    def of_tensor(self, tensor: Tensor, data: Any) -> bytes:
        digest = hashlib.blake2b(
            repr((tensor.name, tensor.datatype, list(tensor.shape), len(data))).encode(),
            digest_size=KEY_BYTES,
            key=self._secret,
        )
        digest.update(data)
        return digest.digest()

    def of_parts(self, outputs: Sequence[str], tensors: Iterable[bytes]) -> bytes:
        """The order of neither means anything."""
        names = repr(sorted(outputs)).encode()
        return hashlib.blake2b(
            b"".join([*sorted(tensors), names]), digest_size=KEY_BYTES, key=self._secret
        ).digest()


def is_cached(config: dict[str, Any]) -> bool:
    """Whether what this model answers may be kept for those who ask the same."""
    return bool((config.get("response_cache") or {}).get("enable"))


def keys_of(settings: dict[str, Any]) -> Keys | None:
    """As the settings in the birth message say; None where the server has no cache."""
    secret = settings.get("cache_secret", "")
    return Keys(bytes.fromhex(secret)) if secret else None
