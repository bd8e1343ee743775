"""Keys of requests in the response cache, made where the bytes of the inputs are.

Frontends and stubs make them for their own requests; the broker compares keys and sees no tensor.
Equal keys mean equal model inputs and requested outputs: 256 bits, under a secret of this server's
run.
"""

from __future__ import annotations

import hashlib
from typing import Any, Iterable, Mapping, Sequence

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.signature import READABLE
from zmqtriton_floor.wire import Reference, RequestBody, Tensor

KEY_BYTES = 32


class Keys:
    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of(self, body: RequestBody) -> bytes:
        """Return the key of a request whose tensors are all small and readable here, else b"".

        A request with large tensors gets its key from of_placed(), after their data was placed. A
        tensor on a GPU has no key.
        """
        for tensor in body.inputs:
            if len(tensor.data) > INLINE_BYTES or type(tensor.data) not in READABLE:
                return b""
        return self.of_parts(body.outputs, [self.of_tensor(t, t.data) for t in body.inputs])

    def of_tensor(self, tensor: Tensor, data: Any) -> bytes:
        """Return a tensor's part of the key; large data and a reference to it have equal parts."""
        is_large = len(data) > INLINE_BYTES
        return self._of_tensor(tensor, len(data), self.digest(data) if is_large else data)

    def marked(self, tensor: Tensor, data: Any) -> tuple[Tensor, bytes]:
        """Return the tensor and its part of the key; a reference gets a digest of the data."""
        if type(tensor.data) is not Reference:
            return tensor, self.of_tensor(tensor, data)
        reference = tensor.data._replace(digest=self.digest(data))
        marked = tensor._replace(data=reference)
        return marked, self.of_reference(marked, reference)

    def of_reference(self, tensor: Tensor, reference: Reference) -> bytes:
        """Return a reference's part of the key; b"" if it has no digest."""
        if len(reference.digest) != KEY_BYTES:
            return b""
        return self._of_tensor(tensor, reference.size, reference.digest)

    def digest(self, data: Any) -> bytes:
        """Return the digest of a large tensor's bytes; the tensor's name does not matter."""
        return hashlib.blake2b(data, digest_size=KEY_BYTES, key=self._secret).digest()

    def _of_tensor(self, tensor: Tensor, size: int, content: Any) -> bytes:
        digest = hashlib.blake2b(
            repr((tensor.name, tensor.datatype, list(tensor.shape), size)).encode(),
            digest_size=KEY_BYTES,
            key=self._secret,
        )
        digest.update(content)
        return digest.digest()

    def of_placed(self, body: RequestBody) -> bytes:
        """Return the key of a request whose large tensors are placed; b"" if one has no digest."""
        parts = [
            self.of_reference(tensor, tensor.data)
            if type(tensor.data) is Reference
            else self.of_tensor(tensor, tensor.data)
            for tensor in body.inputs
        ]
        return self.of_parts(body.outputs, parts) if all(parts) else b""

    def of_parts(self, outputs: Sequence[str], tensors: Iterable[bytes]) -> bytes:
        """Return the key of these requested outputs and parts of tensors, in any order."""
        return hashlib.blake2b(
            b"".join([*sorted(tensors), repr(sorted(outputs)).encode()]),
            digest_size=KEY_BYTES,
            key=self._secret,
        ).digest()


def is_cached(config: Mapping[str, Any]) -> bool:
    """True if the response cache keeps responses of the model with this configuration."""
    return bool((config.get("response_cache") or {}).get("enable"))


def keys_of(secret: str) -> Keys | None:
    """Create the maker of keys from a secret in hex; None without a secret, so without a cache."""
    return Keys(bytes.fromhex(secret)) if secret else None
