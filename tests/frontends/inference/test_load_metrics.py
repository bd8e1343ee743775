"""The forms of ORCA in which the load of a model stands beside an answer."""

from __future__ import annotations

import json

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from zmqtriton_frontends.inference.load_metrics import write, write_binary

LOAD = {
    **{"queued": 3, "executing": 1, "unanswered": 4, "limit": 9, "utilization": 0.5},
    **{"instances": {"ready": 1, "all": 2}, "mean_queue_ms": 1.25},
}
NAMED = {
    **{"queued": 3, "executing": 1, "unanswered": 4, "limit": 9},
    **{"mean_queue_ms": 1.25, "instances_ready": 1, "instances": 2},
}


@pytest.mark.row("L05")
def test_as_json() -> None:
    kind, _, text = write("json", LOAD).partition(" ")

    assert "JSON" == kind
    assert {"application_utilization": 0.5, "named_metrics": NAMED} == json.loads(text)


def test_as_text() -> None:
    kind, _, text = write("text", LOAD).partition(" ")

    pairs = dict(pair.split("=") for pair in text.split(", "))
    assert "TEXT" == kind
    assert "0.5" == pairs.pop("application_utilization")
    assert {f"named_metrics.{name}": f"{value:g}" for name, value in NAMED.items()} == pairs


def test_a_form_that_nobody_knows_is_left_out() -> None:
    assert "" == write("xml", LOAD)


def test_as_the_message_of_orca() -> None:
    field = descriptor_pb2.FieldDescriptorProto
    entry = descriptor_pb2.DescriptorProto(
        name="NamedMetricsEntry", options=descriptor_pb2.MessageOptions(map_entry=True)
    )
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL)
    report = descriptor_pb2.DescriptorProto(name="OrcaLoadReport", nested_type=[entry])
    report.field.add(
        name="named_metrics",
        number=8,
        type=field.TYPE_MESSAGE,
        type_name=".OrcaLoadReport.NamedMetricsEntry",
        label=field.LABEL_REPEATED,
    )
    report.field.add(
        name="application_utilization",
        number=9,
        type=field.TYPE_DOUBLE,
        label=field.LABEL_OPTIONAL,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(
        descriptor_pb2.FileDescriptorProto(
            name="orca.proto", syntax="proto3", message_type=[report]
        )
    )
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("OrcaLoadReport"))

    load = message.FromString(write_binary(LOAD))

    assert NAMED == dict(load.named_metrics)
    assert 0.5 == load.application_utilization
