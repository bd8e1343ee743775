"""The choice of nodes for a model."""

from __future__ import annotations

from zmqtriton_addons.fleet.placement import choose_nodes

EMPTY = {"a": 0, "b": 0, "c": 0}


def test_a_model_stays_where_it_is() -> None:
    assert {"c"} == choose_nodes(1, {"c"}, {**EMPTY, "c": 5})


def test_the_next_node_is_the_one_with_the_fewest_models() -> None:
    assert {"c", "b"} == choose_nodes(2, {"c"}, {"a": 2, "b": 1, "c": 5})


def test_of_too_many_the_fullest_node_goes() -> None:
    assert {"a", "c"} == choose_nodes(2, {"a", "b", "c"}, {"a": 1, "b": 2, "c": 0})


def test_there_are_no_more_than_there_are_nodes() -> None:
    assert set(EMPTY) == choose_nodes(9, (), EMPTY)


def test_a_node_where_it_has_failed_is_the_last_choice() -> None:
    assert {"b", "c"} == choose_nodes(2, (), EMPTY, avoided={"a"})
    assert set(EMPTY) == choose_nodes(3, (), EMPTY, avoided={"a"})
