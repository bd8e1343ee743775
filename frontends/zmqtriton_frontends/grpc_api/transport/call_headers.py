"""The headers of an RPC over HTTP/2: how they are read, and the header blocks of answers.

Does no I/O.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zmqtriton_frontends.access.bearer_tokens import RAW_HEADER
from zmqtriton_frontends.grpc_api.handlers import Rpc
from zmqtriton_frontends.grpc_api.transport.lifecycle import pushback
from zmqtriton_frontends.http2.header_blocks import Headers, literal, status

Metadata = tuple[tuple[str, str | bytes], ...]

UNKNOWN = 2
UNIMPLEMENTED = 12
INTERNAL = 13

#: Headers of gRPC itself, which handlers do not see.
_OWN = frozenset(
    (b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding")
)
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_CONTENT_TYPE = re.compile(rb"application/grpc(?![^+;])")
#: Compressions that requests may have and answers may be given.
ENCODINGS = ("identity", "deflate", "gzip")


class RpcHeaders(NamedTuple):
    """The headers of an RPC. The same ones may open many."""

    rpc: Rpc | None = None
    headers: Headers = ()
    #: Seconds that the client waits; below 0 for ever.
    timeout_s: float = -1.0
    #: The `authorization` values of the call.
    authorization: tuple[str, ...] = ()
    #: The compression of compressed messages.
    encoding: str = ""
    #: The compressions that the client reads.
    accepts: frozenset[str] = frozenset()
    #: The block that refuses it, or b"", and the status that its client takes from that.
    refusal: bytes = b""
    refusal_code: int = 0

    def metadata(self) -> Metadata:
        """Return the metadata for handlers; values of keys that end in -bin are bytes."""
        return tuple(
            (name.decode("ascii"), _value(name, value))
            for name, value in self.headers
            if name[:1] != b":" and name not in _OWN
        )


def refusal_of(code: int, text: str, more: bytes = b"") -> RpcHeaders:
    """Return an RPC that ends with its headers, and with more of them in the answer."""
    return RpcHeaders(refusal=only_trailers(code, text) + more, refusal_code=code)


def read_opening(
    headers: Headers, rpcs: Mapping[bytes, Rpc], of_unknown: RpcHeaders | None = None
) -> RpcHeaders:
    """Read the headers of a request, which http2.connection has checked.

    `of_unknown` answers calls of unknown RPCs; without it they are refused as Triton refuses them.
    """
    fields = dict(headers)
    if not _CONTENT_TYPE.match(fields.get(b"content-type", b"")):
        return RpcHeaders(refusal=status(415), refusal_code=UNKNOWN)
    if fields[b":method"] != b"POST":
        allowed = literal([(b"allow", b"POST")])
        return RpcHeaders(refusal=status(405) + allowed, refusal_code=UNKNOWN)
    rpc = rpcs.get(fields[b":path"])
    if rpc is None:
        return of_unknown or refusal_of(UNIMPLEMENTED, "")
    return _with_fields(RpcHeaders(rpc, headers), fields)


def _with_fields(opening: RpcHeaders, fields: dict[bytes, bytes]) -> RpcHeaders:
    timeout_s, timeout = -1.0, fields.get(b"grpc-timeout")
    if timeout is not None:
        match = _TIMEOUT.fullmatch(timeout)
        if match is None:
            return refusal_of(INTERNAL, "malformed grpc-timeout")
        timeout_s = int(match[1]) * _SECONDS[match[2]]
    encoding = fields.get(b"grpc-encoding", b"identity").decode("latin-1")
    if encoding not in ENCODINGS:
        text = f"Compression algorithm '{encoding}' is not supported"
        accepted = literal([(b"grpc-accept-encoding", ",".join(ENCODINGS).encode())])
        return refusal_of(UNIMPLEMENTED, text, accepted)
    try:
        opening.metadata()
    except binascii.Error:
        return refusal_of(INTERNAL, "invalid base64 in a -bin metadata value")
    accepts = fields.get(b"grpc-accept-encoding", b"").decode("latin-1").split(",")
    return opening._replace(
        timeout_s=timeout_s,
        authorization=tuple(
            value.decode("latin-1") for name, value in opening.headers if name == RAW_HEADER
        ),
        encoding=encoding,
        accepts=frozenset(name.strip() for name in accepts),
    )


def _value(name: bytes, value: bytes) -> str | bytes:
    if name.endswith(b"-bin"):
        return base64.b64decode(value + b"=" * (-len(value) % 4))
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


# --------------------------------------------------------------------- answers

#: The headers of a response, without and with a compression.
HEAD = status(200) + literal([(b"content-type", b"application/grpc")])
HEADS = {
    "": HEAD,
    **{name: HEAD + literal([(b"grpc-encoding", name.encode())]) for name in ENCODINGS},
}
#: The trailers of a successful answer.
TAIL = literal([(b"grpc-status", b"0")])


def trailers(code: int, text: str, retry_after_ms: int = 0) -> bytes:
    pairs = [(b"grpc-status", b"%d" % code)]
    if text:
        pairs.append((b"grpc-message", percent_encoded(text)))
    pairs += [
        (name.encode(), value.encode()) for name, value in pushback(code, text, retry_after_ms)
    ]
    return literal(pairs)


def metadata_block(pairs: Sequence[tuple[str, str | bytes]]) -> bytes:
    """Return metadata as a header block; values of keys that end in -bin are bytes."""
    return literal(
        [
            (name.encode(), base64.b64encode(value) if isinstance(value, bytes) else value.encode())
            for name, value in pairs
        ]
    )


def only_trailers(code: int, text: str, retry_after_ms: int = 0) -> bytes:
    """Return the whole response of an RPC without a message."""
    return HEAD + trailers(code, text, retry_after_ms)


_PLAIN = frozenset(range(0x20, 0x7F)) - {ord("%")}


def percent_encoded(text: str) -> bytes:
    """Encode a text for grpc-message."""
    data = text.encode("utf-8", "replace")
    if _PLAIN.issuperset(data):
        return data
    return b"".join(b"%c" % byte if byte in _PLAIN else b"%%%02X" % byte for byte in data)
