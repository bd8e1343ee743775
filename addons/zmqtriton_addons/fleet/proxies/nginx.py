"""The configuration of nginx 1.18 or newer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zmqtriton_addons.fleet.proxies.layout import Group, Layout, split_address

_HEAD = """\
# The free nginx has no health checks: a server that refuses a request gets none for two seconds,
# and one that is not ready or drains still gets requests. HAProxy and Envoy look.
worker_processes auto;

events {
    worker_connections 4096;
}

http {
    access_log off;
    # Large requests are for the servers to refuse.
    client_max_body_size 0;
    client_body_buffer_size 1m;"""
_OWN_HOST_NOTE = """\
        # A server on loopback refuses the names that clients have for this proxy (421), so places
        # below send its own. Web pages that change it need --http-allowed-origin there."""
_SYSTEM_CA = "/etc/ssl/certs/ca-certificates.crt"
_SEQUENCES = "_sequences"


def render(layout: Layout) -> str:
    return "\n".join(_lines(layout)) + "\n"


def _lines(layout: Layout) -> Iterator[str]:
    yield _HEAD
    if layout.http:
        for group in layout.http_groups():
            yield from _upstreams(layout, group, "http")
        yield from _http(layout)
    if layout.grpc and layout.grpc_group.nodes:
        # nginx refuses a group without servers
        models = [group for group in layout.grpc_model_groups() if group.nodes]
        for group in (*models, layout.grpc_group):
            yield from _upstreams(layout, group, "grpc")
        yield from _grpc(layout, models)
    if layout.statistics:
        yield f"\n    server {{\n        listen {layout.statistics};"
        yield "        location / {\n            stub_status;\n        }\n    }"
    yield "}"


def _upstreams(layout: Layout, group: Group, service: str) -> Iterator[str]:
    yield f"\n    # {group.model}" if group.model else ""
    yield from _upstream(group.name, "least_conn", group, service)
    if layout.sequence_header:
        value = _variable(layout.sequence_header)
        yield from _upstream(group.name + _SEQUENCES, f"hash {value} consistent", group, service)
        yield f"    map {value} ${group.name} {{"
        yield f'        "" {group.name};'
        yield f"        default {group.name}{_SEQUENCES};\n    }}"


def _upstream(name: str, method: str, group: Group, service: str) -> Iterator[str]:
    yield f"    upstream {name} {{\n        {method};"
    for node in group.nodes:
        address = node.grpc if service == "grpc" else node.http
        yield f"        server {address} max_fails=1 fail_timeout=2s;"
    yield "        keepalive 64;\n    }"


def _http(layout: Layout) -> Iterator[str]:
    yield f"\n    server {{\n        listen {layout.http}{_listens_encrypted(layout)};"
    yield from _client_tls(layout)
    yield "        proxy_http_version 1.1;"
    yield '        proxy_set_header Connection "";'
    yield "        proxy_set_header Host $http_host;"
    if layout.http_group.own_host:
        yield _OWN_HOST_NOTE
    yield "        # An answer is passed on as it comes, or streams would wait for their end."
    yield "        proxy_buffering off;"
    yield "        proxy_connect_timeout 2s;"
    yield "        proxy_send_timeout 10m;"
    yield "        proxy_read_timeout 10m;"
    yield "        # A POST is tried elsewhere only if it could not be handed over."
    yield f"        proxy_next_upstream error timeout{_repeats(layout)};"
    encrypted = layout.http_group.has_tls("http")
    yield from _server_tls(layout, "proxy", layout.nodes[0].http) if encrypted else ()
    scheme = "https" if encrypted else "http"
    for group in layout.http_groups():
        path = f"/v2/models/{group.model}"
        places = [f"= {path}", f"^~ {path}/"] if group.model else ["/"]
        for place in places:
            target = _target(layout, group)
            yield f"        location {place} {{\n            proxy_pass {scheme}://{target};"
            yield from _own_host(group)
            yield "        }"
    yield "    }"


def _own_host(group: Group) -> Iterator[str]:
    if group.own_host:
        yield f"            proxy_set_header Host {group.own_host};"
        yield '            proxy_set_header Connection "";'


def _grpc(layout: Layout, models: Sequence[Group]) -> Iterator[str]:
    group = layout.grpc_group
    target = _target(layout, group)
    if models:
        yield f"    map {_variable(layout.model_header)} $grpc_of_model {{"
        yield from (f'        "{each.model}" {_target(layout, each)};' for each in models)
        yield f"        default {target};\n    }}"
        target = "$grpc_of_model"
    yield "\n    # Requests are dealt one by one, also those of one connection."
    yield f"    server {{\n        listen {layout.grpc}{_listens_encrypted(layout)} http2;"
    yield from _client_tls(layout)
    yield "        grpc_connect_timeout 2s;"
    yield "        grpc_send_timeout 10m;"
    yield "        grpc_read_timeout 10m;"
    yield f"        grpc_next_upstream error timeout{_repeats(layout)};"
    encrypted = group.has_tls("grpc")
    yield from _server_tls(layout, "grpc", group.nodes[0].grpc) if encrypted else ()
    scheme = "grpcs" if encrypted else "grpc"
    yield f"        location / {{\n            grpc_pass {scheme}://{target};\n        }}\n    }}"


def _target(layout: Layout, group: Group) -> str:
    return f"${group.name}" if layout.sequence_header else group.name


def _repeats(layout: Layout) -> str:
    return " non_idempotent" if layout.may_repeat else ""


def _variable(header: str) -> str:
    return "$http_" + header.lower().replace("-", "_")


def _listens_encrypted(layout: Layout) -> str:
    return " ssl" if layout.certificate else ""


def _client_tls(layout: Layout) -> Iterator[str]:
    if layout.certificate:
        yield f"        ssl_certificate {_quote(layout.certificate)};"
        yield f"        ssl_certificate_key {_quote(layout.certificate)};"


def _server_tls(layout: Layout, module: str, address: str) -> Iterator[str]:
    authorities = _quote(layout.server_ca or _SYSTEM_CA)
    yield f"        {module}_ssl_verify on;"
    yield f"        {module}_ssl_verify_depth 3;"
    yield f"        {module}_ssl_trusted_certificate {authorities};"
    yield f"        {module}_ssl_server_name on;"
    yield "        # One name for all: the certificate of each server must have it."
    yield f"        {module}_ssl_name {layout.server_name or split_address(address)[0]};"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
