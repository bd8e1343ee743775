"""The page of the metrics: what Triton counts, and the metrics that models make."""

from __future__ import annotations

from tests.conformance.cases import Case, Request, Scrape, coded, infer, streamed, tensor
from tests.conformance.repositories import Model
from tests.conformance.tables.counters import statistics

REPOSITORY = statistics.REPOSITORY
MODELS = (
    *(Model("coded", name) for name in ("scraped", "scraped_failing", "measuring")),
    Model("coded", "scraped_batches", "max_batch_size: 8\n"),
    Model("coded", "scraped_streams", "model_transaction_policy { decoupled: true }\n"),
)

_SAY = "return [say(1)]"


def _lines(name: str) -> Scrape:
    """The head of a family, and its rows for a model that nobody has asked yet."""
    return Scrape(rf'^# \w+ {name} |^{name}\{{model="measuring"')


def family(name: str, kind: str, description: str = "'d'") -> str:
    return (
        f"family = pb_utils.MetricFamily(name='conformance_{name}', description={description}, "
        f"kind=pb_utils.MetricFamily.{kind})\n"
    )


def made(name: str, kind: str, text: str, why: str, description: str = "'d'") -> Case:
    """A case of a model that makes a family, and what of it is on the page."""
    # Kept, since what is deleted is measured no more.
    keeps = f"self.kept_{name} = locals()\n"
    body = family(name, kind, description) + text
    return Case(
        f"metric_{name}",
        (coded(f"{body}\n{keeps}{_SAY}", model="measuring"), Scrape(f"conformance_{name}")),
        "A70",
        why,
    )


def refused(name: str, expression: str, why: str, kind: str = "COUNTER") -> Case:
    body = family(name, kind) + f"metric = family.Metric(labels={{'a': 'b'}})\n{expression}\n"
    return Case(
        f"metric_{name}",
        (coded(body + _SAY, model="measuring"), Scrape(f"conformance_{name}")),
        "A70",
        why,
    )


def scraped(name: str, model: str, *requests: Request, why: str) -> Case:
    later = (statistics.LATER,) if requests else ()
    page = Scrape(f'^nv_(?!model_load).*model="{model}"')
    return Case(f"page_{name}", (*requests, *later, page), "C16", why)


CASES = (
    Case("page_of_success", _lines("nv_inference_request_success"), "C16", "help, type and row"),
    Case("page_of_failure", _lines("nv_inference_request_failure"), "C16", "the reasons"),
    Case(
        "page_of_pending_requests", _lines("nv_inference_pending_request_count"), "C16", "a gauge"
    ),
    Case("page_of_helps", Scrape("^# HELP nv_inference"), "C16", "texts of what is counted"),
    Case("page_of_types", Scrape("^# TYPE nv_inference"), "C16", "kinds of what is counted"),
    Case("page_with_post", Scrape("nothing", "POST"), "C16", "the wrong method"),
    Case("page_with_head", Scrape("nothing", "HEAD"), "C16", "the wrong method"),
    Case("page_with_put", Scrape("nothing", "PUT"), "C16", "the wrong method"),
    Case(
        "page_with_a_query",
        Scrape("TYPE nv_inference_request_success", path="/metrics?x=1"),
        "C16",
        "ignored",
    ),
    Case(
        "page_with_a_slash",
        Scrape("TYPE nv_inference_request_success", path="/metrics/"),
        "C16",
        "the page",
    ),
    Case("page_of_nothing", Scrape("nothing", path="/"), "C16", "nothing there"),
    Case("page_of_health", Scrape("nothing", path="/v2/health/live"), "C16", "of another port"),
    scraped("before_any_request", "scraped", why="all there, with 0"),
    scraped("after_two_successes", "scraped", *2 * [coded(_SAY, model="scraped")], why="two"),
    scraped(
        "after_failures",
        "scraped_failing",
        coded("raise ValueError", model="scraped_failing"),
        infer("scraped_failing", tensor("CODE", "INT8", [1])),
        why="of the model, and of the request",
    ),
    scraped(
        "after_a_batch",
        "scraped_batches",
        infer("scraped_batches", tensor("CODE", "BYTES", 3 * ["return [say(*[1])]"], [3, 1])),
        why="three inferences at once",
    ),
    scraped(
        "after_a_stream",
        "scraped_streams",
        streamed(
            "sender = request.get_response_sender()\nsender.send(say(1))\n"
            "sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)",
            model="scraped_streams",
        ),
        why="one request",
    ),
    made("counted", "COUNTER", "family.Metric(labels={'a': 'b'}).increment(2)", "goes with it"),
    made("added", "COUNTER", "m = family.Metric(labels={'a': 'b'})\nm.increment(2.5)", "a half"),
    made("of_two_labels", "GAUGE", "m = family.Metric(labels={'b': '1', 'a': '2'})", "in order"),
    made("of_no_labels", "GAUGE", "m = family.Metric(labels={})\nm.set(1e21)", "a large number"),
    made("of_odd_labels", "GAUGE", "m = family.Metric(labels={'a': 'x\"\\\\\\n'})", "escaped"),
    made("of_nan", "GAUGE", "m = family.Metric(labels={'a': 'b'})\nm.set(float('nan'))", "NaN"),
    made("of_inf", "GAUGE", "m = family.Metric(labels={'a': 'b'})\nm.set(-float('inf'))", "-Inf"),
    made("of_less", "GAUGE", "m = family.Metric(labels={'a': 'b'})\nm.increment(-3)", "below zero"),
    made(
        "of_odd_help",
        "GAUGE",
        "m = family.Metric(labels={})",
        "escaped",
        "'one\\\\\\ntwo \"three\"'",
    ),
    made(
        "of_two_of_the_same",
        "COUNTER",
        "m = family.Metric(labels={'a': 'b'})\nn = family.Metric(labels={'a': 'b'})\n"
        "m.increment(1)\nn.increment(2)",
        "share a number",
    ),
    made(
        "of_buckets",
        "HISTOGRAM",
        "m = family.Metric(labels={'a': 'b'}, buckets=[1, 2.5])\nm.observe(2)\nm.observe(9)",
        "each bucket, sum and count",
    ),
    refused("that_falls", "metric.increment(-1)", "a counter grows"),
    refused("that_is_set", "metric.set(1)", "a counter is not set"),
    refused("that_is_observed", "metric.observe(1)", "a gauge is not observed", "GAUGE"),
    refused("of_a_text", "metric.increment('1')", "a number"),
    refused("of_labels_of_numbers", "family.Metric(labels={'a': 1})", "texts"),
    refused("of_an_odd_label", "m = family.Metric(labels={'a-b': 'c'})", "no name", "GAUGE"),
    refused(
        "of_another_kind",
        "pb_utils.MetricFamily(name='conformance_of_another_kind', description='d', "
        "kind=pb_utils.MetricFamily.GAUGE)",
        "the kind is settled",
    ),
    refused(
        "of_another_help",
        "m = pb_utils.MetricFamily(name='conformance_of_another_help', description='e', "
        "kind=pb_utils.MetricFamily.COUNTER)",
        "the text is settled",
    ),
    refused(
        "of_a_wrong_name",
        "m = pb_utils.MetricFamily(name='conformance of_a_wrong_name', description='d', "
        "kind=pb_utils.MetricFamily.COUNTER)",
        "no name of Prometheus",
    ),
    refused("of_no_buckets", "pass", "a histogram has them", "HISTOGRAM"),
    refused("of_buckets_of_a_gauge", "family.Metric(labels={}, buckets=[1])", "has none", "GAUGE"),
)
