from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from zmqtriton_standard.metrics.model_metrics import add_labels

_PAGE = (
    "# HELP a Text {of} a\n# TYPE a gauge\na 1\nb{} 2\n"
    'c_bucket{model="m",le="0.5"} 3\nd{model="},team=\\"x\\"{"} 4\ne{team="own"} 5\n'
)


def test_all_samples_have_the_labels_and_keep_their_own() -> None:
    page = add_labels(_PAGE, [("team", 'a"b\\c\nd'), ("xteam", "y")])

    labels = r'team="a\"b\\c\nd",xteam="y"'
    assert page == (
        f"# HELP a Text {{of}} a\n# TYPE a gauge\na{{{labels}}} 1\nb{{{labels}}} 2\n"
        f'c_bucket{{{labels},model="m",le="0.5"}} 3\n'
        f'd{{{labels},model="}},team=\\"x\\"{{"}} 4\n'
        'e{xteam="y",team="own"} 5\n'
    )
    samples = [s for family in text_string_to_metric_families(page) for s in family.samples]
    assert ['a"b\\c\nd'] * 4 + ["own"] == [sample.labels["team"] for sample in samples]


def test_a_value_that_ends_as_a_label_begins_is_a_value() -> None:
    assert 'a{team="x",b=",team="} 1\n' == add_labels('a{b=",team="} 1\n', [("team", "x")])


def test_a_page_without_labels_is_the_same() -> None:
    assert add_labels(_PAGE, []) is _PAGE
