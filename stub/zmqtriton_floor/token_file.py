"""The file of bearer tokens: a line for each, with what its holder may do, but not the token.

    # NAME   HASH OF THE TOKEN      SCOPES                MODELS        LAST DAY (UTC)
    alice    sha256:5e88…           scopes=infer,control
    desk     sha256:9f86…           scopes=infer          models=a*,b   expires=2027-01-31
    night    sha256:2c26…           scopes=infer          requests_per_second=20 concurrency=4
    writer   sha256:ab34…           scopes=infer          tokens_per_minute=20000

Errors name the line and show nothing of it: a user may have put a token there.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from datetime import date
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Tuple

INFER, CONTROL, METRICS = SCOPES = ("infer", "control", "metrics")
ALL_MODELS = ("*",)
#: The names of limits, in a line and in a Grant.
LIMITS = ("requests_per_second", "concurrency", "highest_priority", "tokens_per_minute")
_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?")
NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MODELS = re.compile(r"[^\s,\x00-\x1f]+(,[^\s,\x00-\x1f]+)*")
_MAX_BYTES = 4 << 20


class TokenFileError(ValueError):
    """Raised when a file of tokens cannot be used; the text says why."""


class Grant(NamedTuple):
    """The rights of the holder of one token."""

    name: str
    #: Hash of the token, as digest_of() makes it.
    digest: bytes
    scopes: FrozenSet[str]
    #: Patterns of names, as a shell has them.
    models: Tuple[str, ...] = ALL_MODELS
    #: Last day of validity, in UTC.
    expires: Optional[date] = None
    #: Limits on its inferences: requests per second, unanswered requests, and the highest priority
    #: that they may have, where 1 comes before 2. 0 is no limit.
    requests_per_second: float = 0.0
    concurrency: int = 0
    highest_priority: int = 0
    #: Tokens of text of its prompts and answers, where the server counts them; 0: no limit.
    tokens_per_minute: int = 0

    @property
    def is_for_all_models(self) -> bool:
        return self.models == ALL_MODELS

    def has_model(self, name: str) -> bool:
        """True if the model is among those that it is for."""
        return self.is_for_all_models or any(fnmatchcase(name, glob) for glob in self.models)

    @property
    def limits(self) -> Dict[str, str]:
        """The limits of the token's holder by name, as its line of the file writes them."""
        values = {name: getattr(self, name) for name in LIMITS}
        return {k: f"{v:.6f}".rstrip("0").rstrip(".") for k, v in values.items() if v}

    def line(self) -> str:
        """Return the token's line of the file."""
        words = [self.name, f"sha256:{self.digest.hex()}"]
        words.append("scopes=" + ",".join(scope for scope in SCOPES if scope in self.scopes))
        if not self.is_for_all_models:
            words.append("models=" + ",".join(self.models))
        if self.expires is not None:
            words.append(f"expires={self.expires}")
        words += [f"{name}={value}" for name, value in self.limits.items()]
        return " ".join(words)

    @staticmethod
    def digest_of(token: str) -> bytes:
        """Return the SHA-256 hash of a token, which the file has in its place."""
        # tokens are random and long: no slow hash has to prevent that one is found by trying
        return sha256(token.encode("utf-8", "surrogatepass")).digest()

    @staticmethod
    def read_all(path: str, *, counts_text: bool = True) -> Tuple[Grant, ...]:
        """Read a file that only root and this user can write. Raises TokenFileError.

        A server that does not count tokens of text must not promise to limit them.
        """
        try:
            # what is no file, such as a pipe, must not be waited for
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                _check_file(os.fstat(descriptor))
                with open(descriptor, "rb", closefd=False) as file:
                    data = file.read(_MAX_BYTES + 1)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise TokenFileError(error.strerror) from None
        if len(data) > _MAX_BYTES:
            raise TokenFileError(f"it can have at most {_MAX_BYTES} bytes")
        try:
            return Grant.parse_all(data.decode(), counts_text=counts_text)
        except UnicodeDecodeError:
            raise TokenFileError("not UTF-8, save it as UTF-8") from None

    @staticmethod
    def parse_all(text: str, *, counts_text: bool = True) -> Tuple[Grant, ...]:
        """Parse the content of a file. Raises TokenFileError."""
        grants: List[Grant] = []
        names, digests = set(), set()
        for number, line in enumerate(text.split("\n"), start=1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            try:
                grant = _parse_line(words)
                if grant.name in names:
                    raise ValueError("the name of another line: choose one")
                if grant.digest in digests:
                    raise ValueError(
                        "the token of another line; make a new one with `zmqtriton token new`"
                    )
                if grant.tokens_per_minute and not counts_text:
                    raise ValueError("tokens_per_minute needs --token-metrics")
            except ValueError as error:
                raise TokenFileError(f"line {number}: {error}") from None
            names.add(grant.name)
            digests.add(grant.digest)
            grants.append(grant)
        return tuple(grants)

    @staticmethod
    def reader(key: str) -> Callable[[str], Any]:
        """Return the function that reads a value of a line. It raises ValueError."""
        return _READERS[key]


def _check_file(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise TokenFileError("not a file, name a file")
    is_shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if is_shared or status.st_uid not in (0, os.geteuid()):
        raise TokenFileError("others may write it, which would let them in: chown and chmod 640 it")


def _parse_line(words: List[str]) -> Grant:
    """Parse a line. Raises ValueError."""
    name, hashed = words[0], _HASH.fullmatch(words[1]) if len(words) > 1 else None
    if not NAME.fullmatch(name):
        raise ValueError("the name may have letters, digits and any of _.@-")
    if hashed is None:
        raise ValueError("expecting NAME sha256:HASH scopes=..., with 64 hexadecimal digits")
    fields: Dict[str, str] = {}
    for word in words[2:]:
        key, _, value = word.partition("=")
        if key not in _READERS:
            *keys, last = _READERS
            raise ValueError(f"expecting {'=, '.join(keys)}= or {last}= after the hash")
        if key in fields:
            raise ValueError(f"{key}= is given twice: remove one")
        fields[key] = value
    texts = {"scopes": "", **fields}
    return Grant(
        name, bytes.fromhex(hashed[1]), **{k: _READERS[k](texts[k]) for k in _READERS if k in texts}
    )


def parse_scopes(text: str) -> FrozenSet[str]:
    """Parse scopes with commas between them. Raises ValueError."""
    scopes = frozenset(text.split(","))
    if not scopes.issubset(SCOPES):
        raise ValueError("expecting scopes out of " + ", ".join(SCOPES))
    return scopes


def parse_models(text: str) -> Tuple[str, ...]:
    """Parse patterns with commas between them. Raises ValueError."""
    if not _MODELS.fullmatch(text):
        raise ValueError("expecting models with commas, and no space, between them")
    patterns = tuple(text.split(","))
    return ALL_MODELS if "*" in patterns else patterns


def parse_day(text: str) -> date:
    """Parse a day. Raises ValueError."""
    with suppress(ValueError):
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
    raise ValueError("expecting a day as 2027-01-31")


def parse_rate(text: str) -> float:
    """Parse a number that is not negative. Raises ValueError."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("expecting a number as 20 or 0.5")
    return float(text)


def parse_count(text: str) -> int:
    """Parse a whole number that is not negative. Raises ValueError."""
    if not _NUMBER.fullmatch(text) or "." in text:
        raise ValueError("expecting a whole number as 8")
    return int(text)


#: The keys of a line, in the order of the fields.
_READERS: Dict[str, Callable[[str], Any]] = {
    "scopes": parse_scopes,
    "models": parse_models,
    "expires": parse_day,
    LIMITS[0]: parse_rate,
    **dict.fromkeys(LIMITS[1:], parse_count),
}
