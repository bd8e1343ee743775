"""The destinations of spans, by options and variables."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from zmqtriton.otlp_destination import DestinationError, read


def test_where_nothing_is_said_it_is_as_in_triton() -> None:
    settings = read([], {})

    assert ("http://localhost:4318/v1/traces", {}) == (settings.url, settings.headers)
    assert {"service.name": "triton-inference-server"} == settings.resource
    assert (2048, 512, 5.0, None) == (
        settings.max_queue_size,
        settings.max_batch_size,
        settings.export_delay_s,
        settings.tls,
    )


@pytest.mark.parametrize(
    ("said", "variables", "expected"),
    [
        ("localhost:4318/v1/traces", {}, "http://localhost:4318/v1/traces"),
        ("https://c/x", {"ENDPOINT": "http://other"}, "https://c/x"),
        ("", {"TRACES_ENDPOINT": "http://c:1/x", "ENDPOINT": "http://d"}, "http://c:1/x"),
        ("", {"ENDPOINT": "http://d/base/"}, "http://d/base/v1/traces"),
    ],
)
def test_an_address_may_stand_in_several_places(
    said: str, variables: dict[str, str], expected: str
) -> None:
    environment = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()}

    assert expected == read([("url", said)] if said else [], environment).url


@pytest.mark.parametrize(
    "url", ["ftp://c", "file:///etc/passwd", "http://", "http://c:99999", "a b"]
)
def test_an_address_that_cannot_be_is_refused_with_its_place(url: str) -> None:
    with pytest.raises(DestinationError) as caught:
        read([("url", url)], {})

    assert str(caught.value).startswith('Bad option: "--trace-config opentelemetry,url".\n')
    with pytest.raises(DestinationError, match="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        read([], {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url})


def test_what_is_said_of_the_server_adds_up_with_options_over_variables() -> None:
    pairs = [("resource", "service.version=1=2"), ("resource", "b=mine"), ("resource", "alone")]
    variables = {"OTEL_RESOURCE_ATTRIBUTES": "a=x%20y,b=theirs,nothing", "OTEL_SERVICE_NAME": "s"}

    assert {
        "service.name": "s",
        "service.version": "1=2",
        "a": "x y",
        "b": "mine",
        "alone": "alone",
    } == read(pairs, variables).resource
    assert "o" == read([("resource", "service.name=o")], variables).resource["service.name"]


def test_headers_are_variables_and_never_shown() -> None:
    variables = {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b, x=1"}
    assert {"api-key": "a b", "x": "1"} == read([], variables).headers

    with pytest.raises(DestinationError) as caught:
        read([], {"OTEL_EXPORTER_OTLP_HEADERS": "key=secret%0d%0aInjected: 1"})

    assert "secret" not in str(caught.value)


def test_the_log_shows_no_password_and_no_query() -> None:
    assert "https://c:1/x" == read([("url", "https://user:word@c:1/x?key=1")], {}).public_url


def test_a_message_has_no_more_spans_than_may_wait() -> None:
    pairs = [("bsp_max_queue_size", "10"), ("bsp_schedule_delay", "0")]

    settings = read(pairs, {})

    assert (10, 10, 0.0) == (
        settings.max_queue_size,
        settings.max_batch_size,
        settings.export_delay_s,
    )


def test_authorities_are_those_of_the_variable(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    name = "OTEL_EXPORTER_OTLP_CERTIFICATE"
    https = [("url", "https://c")]

    context = read(https, {name: str(authority.cert)}).tls

    assert isinstance(context, ssl.SSLContext)
    assert 1 == len(context.get_ca_certs())
    with pytest.raises(DestinationError, match=name):
        read(https, {name: str(tmp_path / "missing")})
