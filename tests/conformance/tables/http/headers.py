"""Headers that are forwarded to the model: their names and values as it sees them."""

from __future__ import annotations

from tests.conformance.cases import Case, called, coded, post

REPOSITORY = "shapes"
_SEES = "return [say(sorted(json.loads(request.parameters()).items()))]"


def header(name: str, why: str, **headers: str) -> Case:
    own_headers = {key.replace("_", "-"): value for key, value in headers.items()}
    return Case(
        f"header_{name}", coded(_SEES, model="classes")._replace(headers=own_headers), "C32", why
    )


def metadata(name: str, why: str, **pairs: str) -> Case:
    own_metadata = {key.replace("_", "-"): value for key, value in pairs.items()}
    return Case(
        f"metadata_{name}",
        called(_SEES, model="classes")._replace(metadata=own_metadata),
        "D45",
        why,
    )


CASES = (
    *(
        Case(
            f"load_metrics_as_{form}",
            coded("return [say(1)]", model="classes")._replace(
                headers={"endpoint-load-metrics-format": form}
            ),
            "C67",
            "there are none of a model in Python",
        )
        for form in ("text", "json", "xml")
    ),
    header("plain", "as it should be", x_fwd="one"),
    *(
        Case(
            f"{verb}_with_a_forwarded_header",
            post(f"/v2/models/classes/{verb}", {"CODE": _SEES}, headers={"x-fwd": "one"}),
            "C32",
            "not of these endpoints",
        )
        for verb in ("generate", "generate_stream")
    ),
    header("with_spaces_inside", "they count", x_fwd="one  two"),
    header("with_spaces_around", "those behind are the value's", x_fwd="  one  "),
    header("with_a_tab_inside", "a character like others", x_fwd="one\ttwo"),
    header("with_tabs_around", "white space, too", x_fwd="\tone\t"),
    header("of_nothing", "a space", x_fwd=""),
    header("of_spaces_alone", "a space", x_fwd="   "),
    header("with_a_comma", "one value", x_fwd="one, two"),
    header("with_quotes", "part of it", x_fwd='"one"'),
    header("with_a_backslash", "part of it", x_fwd="one\\two"),
    header("with_a_colon", "part of it", x_fwd="one:two"),
    header("in_latin_1", "no ASCII", x_fwd="caf\xe9"),
    header("in_utf_8", "no ASCII", x_fwd="café".encode().decode("latin-1")),
    header("in_capitals", "names have no case", X_FWD="One"),
    header("that_does_not_match", "others stay out", y_fwd="one"),
    header("that_matches_in_the_middle", "the whole name counts", a_x_fwd="one"),
    header("of_a_number", "a text all the same", x_fwd="5"),
    header("of_a_long_value", "all of it", x_fwd="x" * 2000),
    header("of_many", "each of them", **{f"x_fwd_{number}": str(number) for number in range(10)}),
    metadata("plain", "as it should be", x_fwd="one"),
    metadata("with_spaces_inside", "they count", x_fwd="one  two"),
    metadata("with_spaces_around", "they do not", x_fwd="  one  "),
    metadata("of_nothing", "an empty value", x_fwd=""),
    metadata("with_quotes", "part of it", x_fwd='"one"'),
    metadata("that_does_not_match", "others stay out", y_fwd="one"),
    metadata("of_a_long_value", "all of it", x_fwd="x" * 2000),
)
