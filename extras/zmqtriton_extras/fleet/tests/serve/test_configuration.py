"""The configuration of Ray Serve that a file stands for."""

from __future__ import annotations

from typing import Any

from zmqtriton_extras.fleet.serve.groups import deployment_options, parse_fleet, serve_config


def config(serve: dict[str, Any] | None = None, **groups: Any) -> dict[str, Any]:
    fields = {name: {"model_repository": "/m", **group} for name, group in groups.items()}
    return serve_config(parse_fleet({"groups": fields, "serve": serve or {}}))


def application(**groups: Any) -> dict[str, Any]:
    [only] = config(**groups)["applications"]
    return dict(only)


def test_a_change_of_models_or_numbers_replaces_no_server() -> None:
    before = application(a={"models": {"x": 1}, "min_replicas": 2})
    after = application(a={"models": {"x": 2, "y": 1}, "min_replicas": 1, "max_replicas": 3})

    assert before["args"] == after["args"]
    assert [each["user_config"] for each in before["deployments"]] == [{"models": {"x": 1}}]
    assert before["deployments"] != after["deployments"]
    assert (
        before["args"] != application(a={"models": ["x"], "options": ["--log-info=false"]})["args"]
    )


def test_a_fixed_number_is_no_autoscaling() -> None:
    [fixed] = application(a={"min_replicas": 2})["deployments"]
    [scaled] = application(a={"min_replicas": 1, "max_replicas": 3})["deployments"]

    assert fixed["num_replicas"] == 2
    assert "autoscaling_config" not in fixed
    assert "num_replicas" not in scaled
    limits = scaled["autoscaling_config"]
    assert (limits["min_replicas"], limits["max_replicas"]) == (1, 3)


def test_several_groups_have_an_ingress_that_knows_their_models() -> None:
    *_, ingress = application(a={"models": ["x"]}, b={})["deployments"]

    assert ingress == {"name": "ingress", "user_config": {"groups": {"a": ["x"], "b": None}}}
    assert len(application(a={})["deployments"]) == 1


def test_fields_of_serve_are_its_own() -> None:
    own = {"http_options": {"host": "0.0.0.0"}, "grpc_options": {"port": 9000}}
    document = config(serve=own, a={})

    assert document["http_options"] == {"host": "0.0.0.0"}
    assert document["grpc_options"]["port"] == 9000
    assert document["grpc_options"]["grpc_servicer_functions"] == ["zmqtriton.ray:add_servicer"]


def test_serve_waits_longer_than_a_server_takes_and_sees_one_that_hangs_within_half_a_minute() -> (
    None
):
    fleet = parse_fleet({"groups": {"a": {"model_repository": "/m"}}})
    options = deployment_options(fleet.groups["a"], 60.0)

    assert options["graceful_shutdown_timeout_s"] > 60.0
    # three failures in a row, each of which takes a period and a timeout at most
    each_s = options["health_check_period_s"] * 1.1 + options["health_check_timeout_s"]
    assert 3 * each_s <= 32
