"""The configuration of Envoy 1.32 or newer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zmqtriton_extras.fleet.proxies.layout import BALANCE_FACTOR, Group, Layout, split_address
from zmqtriton_extras.fleet.servers.nodes import Node
from zmqtriton_standard.ctl.yaml_text import yaml_lines

_NOTE = """\
# A server that is not ready gets no new requests; its running requests finish. A sequence moves to
# another server when its own is not ready, also if that only drains: let sequences end before.
"""
_OWN_HOST_NOTE = """\
# A server on loopback refuses the names that clients have for this proxy (421), so it gets its own
# as Host. Web pages that change it through the proxy need --http-allowed-origin there.
"""
_TYPE = "type.googleapis.com/envoy.extensions"
_SYSTEM_CA = "/etc/ssl/certs/ca-certificates.crt"
_UPSTREAM = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_LONGEST = "600s"
#: Conditions of a retry: only requests that no server has begun with are sent again.
_RETRY_UNSENT = "connect-failure,refused-stream,reset-before-request"
_SEQUENCES, _AFFINITY = "_sequences", "_affinity"


def render(layout: Layout) -> str:
    listeners: list[dict[str, Any]] = []
    clusters: list[dict[str, Any]] = []
    if layout.http:
        routes = [
            r for group in layout.http_groups() for r in _routes(layout, group, group.own_host)
        ]
        listeners.append(_listener(layout, "http", layout.http, routes))
        for group in layout.http_groups():
            clusters += _clusters(layout, group, "http")
    if layout.grpc and layout.grpc_group.nodes:
        routes = list(_grpc_routes(layout))
        listeners.append(_listener(layout, "grpc", layout.grpc, routes))
        for group in layout.grpc_groups():
            clusters += _clusters(layout, group, "grpc")
    document: dict[str, Any] = {"static_resources": {"listeners": listeners, "clusters": clusters}}
    if layout.statistics:
        document["admin"] = {"address": _address(layout.statistics)}
    note = _NOTE
    if layout.http and layout.http_group.own_host:
        note += _OWN_HOST_NOTE
    return note + "\n".join(yaml_lines(document)) + "\n"


def _listener(
    layout: Layout, name: str, address: str, routes: list[dict[str, Any]]
) -> dict[str, Any]:
    connections = {
        "@type": f"{_TYPE}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "codec_type": "AUTO",
        "stream_idle_timeout": _LONGEST,
        # with the port of this proxy many clients name a host
        "strip_any_host_port": name == "grpc",
        "route_config": {"virtual_hosts": [{"name": name, "domains": ["*"], "routes": routes}]},
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_TYPE}.filters.http.router.v3.Router"},
            }
        ],
    }
    chain: dict[str, Any] = {
        "filters": [
            {
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": connections,
            }
        ]
    }
    if layout.certificate:
        chain["transport_socket"] = _client_tls(layout, name)
    return {"name": name, "address": _address(address), "filter_chains": [chain]}


def _routes(layout: Layout, group: Group, host: str = "") -> Iterator[dict[str, Any]]:
    """Yield the routes to a group, with a `Host` of its own if it has one."""
    path = f"/v2/models/{group.model}"
    where = {"path_separated_prefix": path} if group.model else {"prefix": "/"}
    return _dealt(layout, group, where, host)


def _grpc_routes(layout: Layout) -> Iterator[dict[str, Any]]:
    for header, value, group in layout.grpc_rules():
        name = {"name": header, "string_match": {"exact": value}}
        yield from _dealt(layout, group, {"prefix": "/", "headers": [name]})
    yield from _dealt(layout, layout.grpc_group, {"prefix": "/"})


def _dealt(
    layout: Layout, group: Group, where: dict[str, Any], host: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield routes of matching requests: with a sequence, with an affinity, and all others."""
    action = {
        "timeout": "0s",
        "idle_timeout": _LONGEST,
        "retry_policy": _retries(layout.may_repeat),
    }
    if host:
        action["host_rewrite_literal"] = host
    for header, kind in ((layout.sequence_header, _SEQUENCES), (layout.affinity_header, _AFFINITY)):
        if not header:
            continue
        is_there = {"name": header, "present_match": True}
        hashed = {
            "cluster": group.name + kind,
            "hash_policy": [{"header": {"header_name": header}}],
            **action,
            "retry_policy": _retries(layout.may_repeat and kind == _AFFINITY),
        }
        yield {
            "match": {**where, "headers": [*where.get("headers", ()), is_there]},
            "route": hashed,
        }
    yield {"match": where, "route": {"cluster": group.name, **action}}


def _retries(may_repeat: bool) -> dict[str, Any]:
    name = "envoy.retry_host_predicates.previous_hosts"
    kind = f"{_TYPE}.retry.host.previous_hosts.v3.PreviousHostsPredicate"
    return {
        "retry_on": f"{_RETRY_UNSENT},reset" if may_repeat else _RETRY_UNSENT,
        "num_retries": 2,
        "retry_host_predicate": [{"name": name, "typed_config": {"@type": kind}}],
        "host_selection_retry_max_attempts": 3,
    }


def _clusters(layout: Layout, group: Group, service: str) -> Iterator[dict[str, Any]]:
    yield _cluster(layout, group, service, group.name, "LEAST_REQUEST")
    if layout.sequence_header:
        yield _cluster(layout, group, service, group.name + _SEQUENCES, "RING_HASH")
    if layout.affinity_header:
        cluster = _cluster(layout, group, service, group.name + _AFFINITY, "RING_HASH")
        bounds = {"hash_balance_factor": BALANCE_FACTOR}
        cluster["common_lb_config"]["consistent_hashing_lb_config"] = bounds
        yield cluster


def _cluster(layout: Layout, group: Group, service: str, name: str, policy: str) -> dict[str, Any]:
    endpoints = [_endpoint(layout, node, service, group) for node in group.nodes]
    cluster: dict[str, Any] = {
        "name": name,
        "type": "STRICT_DNS",
        "lb_policy": policy,
        "connect_timeout": "2s",
        # without any that is ready a request fails, and does not go to one that is not
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "health_checks": [_probe(layout, group, service)],
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": endpoints}],
        },
    }
    if service == "grpc":
        options: dict[str, Any] = {"explicit_http_config": {"http2_protocol_options": {}}}
        cluster["typed_extension_protocol_options"] = {
            _UPSTREAM: {"@type": f"type.googleapis.com/{_UPSTREAM}", **options}
        }
    if group.has_tls(service):
        cluster["transport_socket"] = _server_tls(layout, service)
    return cluster


def _probe(layout: Layout, group: Group, service: str) -> dict[str, Any]:
    headers = [{"header": {"key": k, "value": v}} for k, v in layout.probe_headers]
    often = {"interval": "0.5s", "no_traffic_interval": "0.5s", "timeout": "2s"}
    probe = {**often, "unhealthy_threshold": 2, "healthy_threshold": 1}
    if service == "grpc" and not _asks_http(group):
        return {**probe, "grpc_health_check": {"initial_metadata": headers} if headers else {}}
    check: dict[str, Any] = {"path": group.probe_path}
    if headers:
        check["request_headers_to_add"] = headers
    return {**probe, "http_health_check": check}


def _asks_http(group: Group) -> bool:
    """Return whether gRPC servers are probed over HTTP: a model's health needs this."""
    return bool(group.model) and not any(node.tls for node in group.nodes)


def _endpoint(layout: Layout, node: Node, service: str, group: Group) -> dict[str, Any]:
    address = node.grpc if service == "grpc" else node.http
    name = layout.server_name or split_address(address)[0]
    # a server on loopback answers to none but its own names, and the default is the cluster's
    probe: dict[str, Any] = {"hostname": address}
    if service == "grpc" and _asks_http(group):
        probe = {
            "hostname": node.http,
            "port_value": split_address(node.http)[1],
            "address": _address(node.http),
        }
    endpoint = {"hostname": name, "health_check_config": probe, "address": _address(address)}
    return {"endpoint": endpoint}


def _address(address: str) -> dict[str, Any]:
    host, port = split_address(address)
    return {"socket_address": {"address": host, "port_value": port}}


def _client_tls(layout: Layout, service: str) -> dict[str, Any]:
    file = {"filename": layout.certificate}
    context = {
        "alpn_protocols": ["h2"] if service == "grpc" else ["h2", "http/1.1"],
        "tls_certificates": [{"certificate_chain": file, "private_key": file}],
    }
    return _tls("DownstreamTlsContext", {"common_tls_context": context})


def _server_tls(layout: Layout, service: str) -> dict[str, Any]:
    authorities = {"trusted_ca": {"filename": layout.server_ca or _SYSTEM_CA}}
    context = {
        "validation_context": authorities,
        "alpn_protocols": ["h2" if service == "grpc" else "http/1.1"],
    }
    checked = {"auto_host_sni": True, "auto_sni_san_validation": True}
    return _tls("UpstreamTlsContext", {"common_tls_context": context, **checked})


def _tls(kind: str, context: dict[str, Any]) -> dict[str, Any]:
    config = {"@type": f"{_TYPE}.transport_sockets.tls.v3.{kind}", **context}
    return {"name": "envoy.transport_sockets.tls", "typed_config": config}
