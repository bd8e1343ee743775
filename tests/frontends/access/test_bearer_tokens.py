"""Bearer tokens: what they allow, wrong ones, and what is hidden."""

from __future__ import annotations

import logging
from datetime import date
from pathlib import Path

import pytest

from zmqtriton.options.values import HTTP_CATEGORIES
from zmqtriton_floor import token_file
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.token_file import CONTROL, INFER, METRICS, Grant
from zmqtriton_frontends.access import bearer_tokens
from zmqtriton_frontends.access.bearer_tokens import (
    ANY,
    MAX_AT_ONCE,
    OPEN,
    SECONDS_FOR_ONE,
    BearerTokens,
    FailureLimit,
    check_target,
    may_see,
    need_of,
    places_hidden,
    visible_entries,
    without_places,
)
from zmqtriton_frontends.access.refusals import (
    AccessRefused,
    Forbidden,
    TooManyFailures,
    Unauthenticated,
)

# ----------------------------------------------------------------------- bearer tokens
# Decisions about tokens, over a real file, without a server.


TOKEN = "zmqt_of-ann"


HEADER = f"Bearer {TOKEN}"


def grant(name: str = "ann", token: str = TOKEN, scopes: str = INFER, **more: object) -> Grant:
    return Grant(name, token_file.Grant.digest_of(token), token_file.parse_scopes(scopes), **more)  # type: ignore[arg-type]


def write(path: Path, *grants: Grant) -> None:
    new = path.with_suffix(".new")
    new.write_text("".join(f"{one.line()}\n" for one in grants))
    new.chmod(0o600)
    new.replace(path)


def look(tokens: BearerTokens) -> None:
    """A change is read at the second look at it, when the file has been at rest."""
    tokens.look()
    tokens.look()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    write(path, grant())
    return path


@pytest.fixture
def tokens(path: Path) -> BearerTokens:
    return BearerTokens(str(path))


def refusal(tokens: BearerTokens, *values: str, address: str = "192.0.2.1") -> AccessRefused:
    with pytest.raises(AccessRefused) as raised:
        tokens.check(values, address, ANY)
    return raised.value


@pytest.mark.row("L09")
@pytest.mark.parametrize("value", [HEADER, f"bearer {TOKEN}", f"BEARER   {TOKEN} "])
def test_a_token_is_found_however_its_scheme_is_written(path: Path, value: str) -> None:
    assert BearerTokens(str(path)).check([value], "", INFER).name == "ann"


@pytest.mark.row("L09")
@pytest.mark.parametrize("values", [(), ("",), ("Basic YTpi",), (TOKEN,), (f"Token {TOKEN}",)])
def test_without_a_token_the_client_is_told_to_send_one(
    path: Path, values: tuple[str, ...]
) -> None:
    error = refusal(BearerTokens(str(path)), *values)

    assert (401, 16) == (error.http_status, error.grpc_status)
    assert (("WWW-Authenticate", "Bearer"),) == error.headers
    assert "expecting header 'Authorization: Bearer TOKEN'" in error.text


@pytest.mark.row("L09")
@pytest.mark.parametrize(
    "values",
    [
        ("Bearer ",),
        ("Bearer x",),
        (HEADER + "x",),
        (HEADER[:-1],),
        (f"Bearer {TOKEN.upper()}",),
        (f"{HEADER},{HEADER}",),
        (HEADER, HEADER),
        (HEADER, "Basic YTpi"),
        ("Bearer \xe9\xff\udc80",),
        ("Bearer " + "x" * 100_000,),
        (f"Bearer {token_file.Grant.digest_of(TOKEN).hex()}",),
        (f"Bearer sha256:{token_file.Grant.digest_of(TOKEN).hex()}",),
    ],
)
def test_any_other_token_is_refused(path: Path, values: tuple[str, ...]) -> None:
    error = refusal(BearerTokens(str(path)), *values)

    assert isinstance(error, Unauthenticated)
    assert (("WWW-Authenticate", 'Bearer error="invalid_token"'),) == error.headers
    assert values[0][7:20] not in error.text or values[0] == "Bearer "


def test_a_token_is_good_for_its_scopes_alone(tokens: BearerTokens, path: Path) -> None:
    assert tokens.check([HEADER], "", ANY) == tokens.check([HEADER], "", INFER) == grant()
    for scope in (CONTROL, METRICS):
        with pytest.raises(Forbidden, match=f"expecting scope '{scope}'") as raised:
            tokens.check([HEADER], "", scope)
        assert f'scope="{scope}"' in raised.value.headers[0][1]


def test_the_model_is_checked_with_the_token_where_it_is_known(path: Path) -> None:
    write(path, grant(models=("a*",), scopes="infer,metrics"))
    tokens = BearerTokens(str(path))

    tokens.check([HEADER], "", INFER, "abc")
    tokens.check([HEADER], "", METRICS)
    for need, model in ((INFER, "x"), (METRICS, "")):
        with pytest.raises(Forbidden):
            tokens.check([HEADER], "", need, model)


def test_a_token_may_be_for_some_models_alone() -> None:
    some, every = grant(models=("a*",)), grant()

    for need in (ANY, INFER, CONTROL):
        check_target(some, need, "abc")
        check_target(every, need, "x")
        check_target(None, need, "x")
        with pytest.raises(Forbidden, match="not for this model"):
            check_target(some, need, "x")
    check_target(some, ANY, "")
    check_target(some, INFER, "")
    for need in (CONTROL, METRICS):
        check_target(every, need, "")
        with pytest.raises(Forbidden, match="about the server"):
            check_target(some, need, "")
    assert [True, False, True, True] == [
        may_see(some, "a"),
        may_see(some, "b"),
        may_see(every, "b"),
        may_see(None, "b"),
    ]


@pytest.mark.row("L09")
def test_what_is_not_said_to_need_less_needs_control() -> None:
    needs = {category: need_of(category) for category in (*HTTP_CATEGORIES, "steering", "new")}

    assert {OPEN} == {needs.pop("health"), need_of("")}
    assert {ANY} == {needs.pop(name) for name in ("metadata", "model-config", "statistics")}
    assert {INFER} == {needs.pop(name) for name in ("inference", "shared-memory")}
    assert {CONTROL} == set(needs.values())
    assert need_of("health", names_model=True) == ANY
    assert need_of("model-repository", is_index=True) == ANY


# ------------------------------------------------------------------ wrong tokens
@pytest.mark.row("L09")
def test_many_wrong_tokens_make_their_address_wait_and_valid_ones_pass(
    tokens: BearerTokens, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [refusal(tokens, f"Bearer wrong-{i}") for i in range(MAX_AT_ONCE + 5)]

    assert [401] * MAX_AT_ONCE == [error.http_status for error in errors[:MAX_AT_ONCE]]
    assert all(isinstance(error, TooManyFailures) for error in errors[MAX_AT_ONCE:])
    assert (429, 8) == (errors[-1].http_status, errors[-1].grpc_status)
    assert errors[-1].headers[0][0] == "Retry-After"
    assert int(errors[-1].headers[0][1]) > 0
    assert tokens.check([HEADER], "192.0.2.1", INFER).name == "ann"
    assert refusal(tokens, "Bearer wrong", address="192.0.2.2").http_status == 401
    assert refusal(tokens).http_status == 401, "who presents none has tried none"
    warnings = [record.getMessage() for record in caplog.records]
    assert ["192.0.2.1", "192.0.2.2"] == [text.split(" ")[0] for text in warnings]
    assert "wrong-" not in caplog.text


# ---------------------------------------------------------------------- the file
@pytest.mark.row("L09")
def test_a_changed_file_counts_when_it_is_at_rest(path: Path) -> None:
    tokens, changes = BearerTokens(str(path)), []
    tokens.on_change.append(lambda: changes.append(1))

    write(path, grant("bob", "other"))
    tokens.look()
    assert tokens.find([HEADER]) is not None
    assert [] == changes
    tokens.look()

    assert tokens.find([HEADER]) is None
    assert [1] == changes
    assert tokens.check(["Bearer other"], "", INFER).name == "bob"
    look(tokens)
    assert [1] == changes


@pytest.mark.row("L09")
@pytest.mark.parametrize(
    ("line", "mode"),
    [
        (f"bob {TOKEN}", 0o600),
        ("", 0o666),
        (grant("bob", "other", tokens_per_minute=100).line(), 0o600),
        (None, 0),
    ],
    ids=["text", "mode", "limit", "gone"],
)
def test_a_file_that_cannot_be_used_changes_nothing_and_is_logged_once(
    path: Path, caplog: pytest.LogCaptureFixture, line: str | None, mode: int
) -> None:
    tokens = BearerTokens(str(path), counts_text=False)

    if line is None:
        path.unlink()
    else:
        path.write_text(f"{grant().line()}\n{line}\n")
        path.chmod(mode)
    for _ in range(5):
        tokens.look()

    assert tokens.find([HEADER]) is not None
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "cannot be used, the tokens are those of before" in record.getMessage()
    assert TOKEN not in caplog.text
    write(path, grant("bob", "other"))
    look(tokens)
    assert tokens.find(["Bearer other"]) is not None


def test_the_day_after_the_last_one_a_token_has_expired(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, grant(expires=date(2027, 1, 31)), grant("bob", "other"))
    days = [date(2027, 1, 31)]
    monkeypatch.setattr(bearer_tokens, "_today", lambda: days[0])
    tokens, changes = BearerTokens(str(path)), []
    tokens.on_change.append(lambda: changes.append(1))
    assert tokens.find([HEADER]) is not None

    days[0] = date(2027, 2, 1)
    tokens.look()

    assert "The token has expired" == refusal(tokens, HEADER).text
    assert "The token is not known to this server" == refusal(tokens, HEADER + "x").text
    assert tokens.find(["Bearer other"]) is not None
    assert [1] == changes


# ----------------------------------------------------------------------- failure limit


@pytest.fixture
def limit() -> FailureLimit:
    return FailureLimit()


@pytest.mark.row("L09")
def test_so_many_failures_are_answered_and_then_their_address_waits(limit: FailureLimit) -> None:
    waits = [limit.add("192.0.2.1", 100.0).wait_s for _ in range(MAX_AT_ONCE + 2)]

    assert waits == [0] * MAX_AT_ONCE + [SECONDS_FOR_ONE] * 2
    assert limit.add("192.0.2.2", 100.0).wait_s == 0
    assert limit.add("192.0.2.1", 100.0 + SECONDS_FOR_ONE).wait_s == 0
    assert limit.add("192.0.2.1", 100.0 + SECONDS_FOR_ONE).wait_s == SECONDS_FOR_ONE


def test_waiting_is_told_in_whole_seconds_that_suffice(limit: FailureLimit) -> None:
    for _ in range(MAX_AT_ONCE):
        limit.add("192.0.2.1", 0.0)

    wait_s = limit.add("192.0.2.1", 1.5).wait_s

    assert wait_s == 2
    assert limit.add("192.0.2.1", 1.5 + wait_s).wait_s == 0


def test_a_burst_begins_once_and_ends_with_a_silence(limit: FailureLimit) -> None:
    assert limit.add("192.0.2.1", 0.0).begins_burst
    assert not any(limit.add("192.0.2.1", 0.1 * i).begins_burst for i in range(1, 500))
    silent_since_s = 50.0
    assert not limit.add("192.0.2.1", silent_since_s + 30).begins_burst
    assert limit.add("192.0.2.1", silent_since_s + 200).begins_burst


def test_addresses_that_one_client_has_count_together(limit: FailureLimit) -> None:
    for number in range(MAX_AT_ONCE):
        assert limit.add(f"2001:db8::{number:x}", 0.0).wait_s == 0
    assert limit.add("2001:db8::ffff:ffff:ffff:ffff", 0.0).wait_s
    assert limit.add("2001:db8:0:1::1", 0.0).wait_s == 0
    assert limit.add("fe80::1%eth0", 0.0).begins_burst
    assert not limit.add("fe80::2%eth1", 0.0).begins_burst

    assert limit.add("::ffff:192.0.2.7", 0.0).begins_burst
    assert limit.add("::ffff:192.0.2.8", 0.0).begins_burst
    assert not limit.add("192.0.2.7", 0.0).begins_burst


@pytest.mark.row("L09")
def test_however_many_addresses_there_are_the_memory_is_bounded(limit: FailureLimit) -> None:
    for _ in range(MAX_AT_ONCE):
        limit.add("192.0.2.1", 0.0)

    for number in range(2 * FailureLimit.MAX_ADDRESSES):
        limit.add(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
        if number < FailureLimit.MAX_ADDRESSES:
            assert limit.add("192.0.2.1", 0.0).wait_s, "who goes on is not forgotten"
    limit.add("x" * 10_000, 0.0)

    assert len(limit) == FailureLimit.MAX_ADDRESSES
    # a long address would be kept whole
    assert max(len(holder) for holder in limit._buckets) <= 64


# ----------------------------------------------------------------------- hidden places
# Paths in texts for the holder of a token for some models.


SOME = Grant("some", b"", frozenset(), ("m",))


ALL = Grant("all", b"", frozenset())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("At:\n  /a/b/m/1/model.py(3): initialize\n", "At:\n  m/1/model.py(3): initialize\n"),
        (
            "from /a/m/config.pbtxt\n/a/m/config.pbtxt:1:1: no",
            "from m/config.pbtxt\nm/config.pbtxt:1:1: no",
        ),
        ("not found in '/a/m/1/x.py' Did you", "not found in 'm/1/x.py' Did you"),
        ("/etc/secret.key is missing", "secret.key is missing"),
        ("(/a/m)", "(m)"),
        (
            "1/2 of https://host/a/b and b/c, input/output",
            "1/2 of https://host/a/b and b/c, input/output",
        ),
        ("a / b /", "a / b /"),
    ],
)
def test_paths_begin_at_the_model(text: str, shown: str) -> None:
    assert shown == without_places(text, "m")


def test_documents_are_searched() -> None:
    assert {"a": [1, "m/x", {"b": None}]} == without_places({"a": [1, "/r/m/x", {"b": None}]}, "m")


def test_entries_of_other_models_are_left_out() -> None:
    index = [{"name": "m", "reason": "/r/m/1"}, {"name": "n", "reason": "/r/n/1"}]

    assert [{"name": "m", "reason": "m/1"}] == visible_entries(index, SOME)
    assert index == visible_entries(index, ALL) == visible_entries(index, None)


@pytest.mark.parametrize(("grant", "text"), [(SOME, "m/1"), (ALL, "/r/m/1"), (None, "/r/m/1")])
def test_errors_are_shortened(grant: Grant | None, text: str) -> None:
    with pytest.raises(InvalidArgument) as error, places_hidden(grant, "m"):
        raise InvalidArgument("/r/m/1")

    assert text == error.value.text
