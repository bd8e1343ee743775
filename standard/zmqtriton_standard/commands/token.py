"""`zmqtriton token new|list|remove`: the tokens of a server with `--tokens FILE`.

A new token is printed once; the file has its hash. Servers notice within two seconds.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timezone

from zmqtriton.sdk.process import table
from zmqtriton.sdk.wire import Grant

#: Prefix of tokens. It lets secret scanners recognize a token that was committed by accident.
_PREFIX = "zmqt_"
_RANDOM_BYTES = 32
_MODE = 0o600
#: Options of a new token that limit it: field of the grant, form, and help.
_LIMITS = (
    (
        "expires",
        "DAY",
        "last day on which it is valid, in UTC, such as 2027-01-31 (default: never)",
    ),
    (
        "requests_per_second",
        "N",
        "inferences that it may ask for, with bursts of a second (default: any number)",
    ),
    (
        "concurrency",
        "N",
        "inferences that may be unanswered at a time (default: any number)",
    ),
    (
        "highest_priority",
        "LEVEL",
        "level before which its inferences never come; 1 is the first (default: any)",
    ),
    (
        "tokens_per_minute",
        "N",
        "tokens of text of its prompts and answers; the server needs --token-metrics "
        "(default: any number)",
    ),
)


def run_token(words: list[str]) -> int:
    """Run the command and return the exit status."""
    arguments = _parser().parse_args(words)
    try:
        arguments.run(arguments)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        sys.stderr.write(f"error: {arguments.file}: {reason}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zmqtriton token",
        description="Make, list and remove the bearer tokens of servers with --tokens FILE.",
    )
    verbs = parser.add_subparsers(required=True, metavar="new|list|remove")
    new = verbs.add_parser("new", help="make a token, and print it once")
    new.add_argument("--name", required=True, help="who it is for")
    new.add_argument(
        "--scopes",
        "--scope",
        required=True,
        type=Grant.reader("scopes"),
        help="what it is good for: infer, control and metrics, with commas between them",
    )
    new.add_argument(
        "--models",
        default="*",
        type=Grant.reader("models"),
        help="models that it is for, with commas between them; may have * and ? (default: all)",
    )
    for name, metavar, text in _LIMITS:
        new.add_argument(
            f"--{name.replace('_', '-')}",
            metavar=metavar,
            type=Grant.reader(name),
            default=Grant._field_defaults[name],
            help=text,
        )
    new.set_defaults(run=_make)
    listing = verbs.add_parser("list", help="show the tokens of a file")
    listing.set_defaults(run=_list)
    remove = verbs.add_parser("remove", help="remove a token")
    remove.add_argument("name", help="name of the token")
    remove.set_defaults(run=_remove)
    for verb in (new, listing, remove):
        verb.add_argument("file", metavar="FILE", help="file of the tokens")
    return parser


def _make(arguments: argparse.Namespace) -> None:
    token = _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    digest = Grant.digest_of(token)
    of_user = {name: getattr(arguments, name) for name in Grant._fields if name != "digest"}
    grant = Grant(digest=digest, **of_user)
    if grant.expires is not None and grant.expires < _today():
        raise ValueError(f"{grant.expires} is over: choose a later day")
    with _locked(arguments.file, create=True) as path:
        before = _lines(path)
        # the whole is checked, so that a server can read it in any case
        Grant.parse_all("\n".join([*before, grant.line()]))
        _replace(path, [*before, grant.line()])
    sys.stdout.write(f"{token}\n")
    sys.stderr.write(f"The token of {grant.name}, which is shown this once: {_summary(grant)}\n")


def _list(arguments: argparse.Namespace) -> None:
    today = _today()
    rows = []
    for grant in Grant.read_all(arguments.file):
        day = "never" if grant.expires is None else str(grant.expires)
        is_over = grant.expires is not None and grant.expires < today
        scopes = ", ".join(sorted(grant.scopes))
        row = grant.name, scopes, ", ".join(grant.models), day + " (over)" * is_over
        rows.append((*row, " ".join(_limits(grant)) or "-"))
    sys.stdout.write(table(("Name", "Scopes", "Models", "Expires", "Limits"), rows) + "\n")


def _remove(arguments: argparse.Namespace) -> None:
    with _locked(arguments.file) as path:
        before = _lines(path)
        Grant.parse_all("\n".join(before))
        left = [line for line in before if line.split()[:1] != [arguments.name]]
        if len(left) == len(before):
            raise ValueError(
                f"there is no token of the name {arguments.name}; `zmqtriton token list` lists them"
            )
        _replace(path, left)


def _summary(grant: Grant) -> str:
    models = "all models" if grant.is_for_all_models else f"models {', '.join(grant.models)}"
    until = "" if grant.expires is None else f", until {grant.expires}"
    limits = "".join(f", {limit}" for limit in _limits(grant))
    return f"{', '.join(sorted(grant.scopes))} for {models}{until}{limits}"


def _limits(grant: Grant) -> list[str]:
    return [f"{name}={value}" for name, value in grant.limits.items()]


@contextmanager
def _locked(name: str, *, create: bool = False) -> Iterator[str]:
    """Keep other processes from changing the file; return its path, with links followed."""
    while True:
        path = os.path.realpath(name)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with open(os.open(path, flags, _MODE), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.exists(path) and os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                yield path
                return


def _lines(path: str) -> list[str]:
    Grant.read_all(path)  # which raises for a file that is not safe
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def _replace(path: str, lines: list[str]) -> None:
    """Replace the token file by a rename, so that the server never reads half of the new one."""
    before = os.stat(path)
    new = f"{path}.{secrets.token_hex(4)}"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, before.st_mode & 0o777)
            _keep_owner(descriptor, before)
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(descriptor)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


def _keep_owner(descriptor: int, before: os.stat_result) -> None:
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (before.st_uid, before.st_gid):
        os.fchown(descriptor, before.st_uid, before.st_gid)


def _today() -> date:
    return datetime.now(timezone.utc).date()
