"""Bodies with a key twice, keys of shared memory, settings of traces, models that would end."""

from __future__ import annotations

from typing import Any

from tests.conformance.cases import Case, Http, Rpc, coded, get, post

REPOSITORY = "main"

_TRACE = "/v2/trace/setting"
_OF = "/v2/models/{}/trace/setting"
_REGION = "/v2/systemsharedmemory/region/conformance_{}"
_SAYS = "return [say(1)]"
_CODE = f'{{"name": "CODE", "shape": [1], "datatype": "BYTES", "data": ["{_SAYS}"]}}'


def generated(name: str, body: str, why: str, model: str = "coded") -> Case:
    return Case(f"generate_{name}", post(f"/v2/models/{model}/generate", body), "C40", why)


def inferred(name: str, body: str, why: str) -> Case:
    return Case(f"infer_{name}", post("/v2/models/coded/infer", body), "C20", why)


def traced(name: str, settings: Any, why: str, model: str = "") -> Case:
    """A change of trace settings, and what they are then."""
    path = _OF.format(model) if model else _TRACE
    return Case(f"trace_{name}", (post(path, settings), post(path, _RESET)), "C96", why)


_RESET = {"trace_level": None, "trace_rate": None, "trace_count": None, "log_frequency": None}


def region(name: str, key: str, why: str, byte_size: Any = 64, **more: Any) -> Case:
    """Registers, asks for it, and takes it away."""
    path = _REGION.format(name)
    return Case(
        f"region_{name}",
        (
            coded(
                "open('/dev/shm/conformance_region', 'wb').write(bytes(64))\nreturn [say('made')]"
            ),
            post(f"{path}/register", {"key": key, "byte_size": byte_size, **more}),
            get(f"{path}/status"),
            post(f"{path}/unregister"),
            coded("import os\nos.unlink('/dev/shm/conformance_region')\nreturn [say('gone')]"),
        ),
        "C90",
        why,
    )


_BEFORE = coded("import os\nself.pid = os.getpid()\nreturn [say('noted')]", model="coded_other")
_AFTER = coded("import os\nreturn [say(self.pid == os.getpid())]", model="coded_other")


def ends(name: str, text: str, why: str) -> Case:
    """Has a model do what would end its process, and asks whether it is the same afterwards."""
    return Case(f"execute_{name}", (_BEFORE, coded(text, model="coded_other"), _AFTER), "A24", why)


CASES = (
    # ------------------------------------------------------------------------ a key twice
    generated("with_an_input_twice", f'{{"CODE": "{_SAYS}", "CODE": "return [say(2)]"}}', "twice"),
    generated("with_a_parameter_twice", f'{{"CODE": "{_SAYS}", "x": 1, "x": 2}}', "twice"),
    generated("with_an_id_twice", f'{{"CODE": "{_SAYS}", "id": "a", "id": "b"}}', "twice"),
    generated(
        "with_an_input_twice_and_none_else", f'{{"CODE": "{_SAYS}", "CODE": "{_SAYS}"}}', "the same"
    ),
    generated(
        "with_parameters_twice",
        f'{{"CODE": "{_SAYS}", "parameters": {{"x": 1}}, "parameters": {{"y": 2}}}}',
        "twice",
    ),
    generated(
        "with_a_nested_parameter_twice",
        f'{{"CODE": "{_SAYS}", "parameters": {{"x": 1, "x": 2}}}}',
        "twice below",
    ),
    generated(
        "with_a_parameter_nested_too",
        f'{{"CODE": "{_SAYS}", "x": 1, "parameters": {{"x": 2}}}}',
        "once here and once below",
    ),
    generated(
        "with_an_input_nested_too",
        f'{{"CODE": "{_SAYS}", "parameters": {{"CODE": "return [say(2)]"}}}}',
        "once here and once below",
    ),
    generated(
        "with_an_input_nested_alone", f'{{"parameters": {{"CODE": "{_SAYS}"}}}}', "below alone"
    ),
    generated("with_an_object_twice", f'{{"CODE": "{_SAYS}", "x": {{"a": 1, "a": 2}}}}', "twice"),
    inferred("with_inputs_twice", f'{{"inputs": [{_CODE}], "inputs": [{_CODE}]}}', "twice"),
    inferred("with_an_id_twice", f'{{"id": "a", "id": "b", "inputs": [{_CODE}]}}', "twice"),
    inferred(
        "with_a_name_twice",
        '{"inputs": [' + _CODE.replace('"name"', '"name": "X", "name"') + "]}",
        "twice",
    ),
    inferred(
        "with_data_twice",
        '{"inputs": [' + _CODE.replace('"data"', '"data": ["x"], "data"') + "]}",
        "twice",
    ),
    inferred(
        "with_a_parameter_twice", f'{{"parameters": {{"x": 1, "x": 2}}, "inputs": [{_CODE}]}}', "?"
    ),
    inferred("with_an_input_twice", f'{{"inputs": [{_CODE}, {_CODE}]}}', "one name in two"),
    inferred(
        "with_inputs_second_wrong", f'{{"inputs": [{_CODE}], "inputs": 5}}', "which one counts?"
    ),
    # --------------------------------------------------------------------- shared memory
    region("plain", "/conformance_region", "as it should be"),
    region("without_a_slash", "conformance_region", "no slash"),
    region("with_two_slashes", "//conformance_region", "the first ones do not count"),
    region("with_three_slashes", "///conformance_region", "the first ones do not count"),
    region("with_a_slash_behind", "/conformance_region/", "no such name"),
    region("in_a_directory", "/x/conformance_region", "no such directory"),
    region("with_a_dot", "/./conformance_region", "a path"),
    region("above", "/../shm/conformance_region", "a path"),
    region("of_slashes_alone", "//", "no name"),
    region("of_no_key", "", "no name"),
    region("beyond_its_end", "/conformance_region", "larger than the file", 65),
    region("with_an_offset", "/conformance_region", "the rest of it", 32, offset=32),
    region("with_an_offset_beyond", "/conformance_region", "more than is left", 64, offset=1),
    region("with_a_negative_offset", "/conformance_region", "below 0", 32, offset=-1),
    region("with_a_negative_size", "/conformance_region", "below 0", -1),
    region("of_no_bytes", "/conformance_region", "nothing", 0),
    region("with_a_text_as_size", "/conformance_region", "a number", "64"),
    region("with_a_float_as_size", "/conformance_region", "a whole number", 64.0),
    region("with_a_text_as_offset", "/conformance_region", "a number", 32, offset="0"),
    region("with_null_as_offset", "/conformance_region", "none", 32, offset=None),
    Case(
        "region_twice",
        (
            coded(
                "open('/dev/shm/conformance_region', 'wb').write(bytes(64))\nreturn [say('made')]"
            ),
            *(
                post(
                    _REGION.format("twice") + "/register",
                    {"key": "/conformance_region", "byte_size": size},
                )
                for size in (64, 64, 32)
            ),
            post("/v2/systemsharedmemory/unregister"),
            get("/v2/systemsharedmemory/status"),
            coded("import os\nos.unlink('/dev/shm/conformance_region')\nreturn [say('gone')]"),
        ),
        "C90",
        "one name twice",
    ),
    # ---------------------------------------------------------------------------- traces
    traced("file_of_an_unknown_model", {"trace_file": "x"}, "which mistake first?", "unknown"),
    traced("level_of_an_unknown_model", {"trace_level": ["X"]}, "which one first?", "unknown"),
    traced("nothing_of_an_unknown_model", {}, "no change", "unknown"),
    traced("cut_of_an_unknown_model", "{", "which mistake first?", "unknown"),
    traced("setting_of_an_unknown_model", {"x": "1"}, "which mistake first?", "unknown"),
    traced("file_and_a_wrong_level", {"trace_file": "x", "trace_level": ["X"]}, "the first?"),
    traced("wrong_level_and_a_file", {"trace_level": ["X"], "trace_file": "x"}, "the first?"),
    traced("file_that_is_null", {"trace_file": None}, "no change"),
    traced("rate_that_is_a_number", {"trace_rate": 5}, "a text"),
    traced("rate_that_is_negative", {"trace_rate": "-5"}, "below 0"),
    traced("rate_of_nothing", {"trace_rate": ""}, "no number"),
    traced("rate_with_letters_behind", {"trace_rate": "5x"}, "no number"),
    traced("rate_that_is_huge", {"trace_rate": "99999999999999999999"}, "no number"),
    traced("rate_that_is_a_list", {"trace_rate": ["5"]}, "a text"),
    traced("count_of_nought", {"trace_count": "0"}, "none"),
    traced("count_below_minus_one", {"trace_count": "-2"}, "-1 is the least"),
    traced("count_that_is_a_float", {"trace_count": "1.5"}, "a whole number"),
    traced("level_that_is_a_text", {"trace_level": "TIMESTAMPS"}, "a list"),
    traced("level_of_nothing", {"trace_level": []}, "none"),
    traced("level_twice", {"trace_level": ["TIMESTAMPS", "TIMESTAMPS"]}, "twice"),
    traced("level_off_and_on", {"trace_level": ["OFF", "TIMESTAMPS"]}, "a contradiction"),
    traced("level_in_small_letters", {"trace_level": ["timestamps"]}, "no such level"),
    traced("level_that_holds_a_number", {"trace_level": [1]}, "a text"),
    traced("frequency_that_is_a_word", {"log_frequency": "x"}, "a number"),
    traced("mode", {"trace_mode": "opentelemetry"}, "cannot be changed"),
    traced("of_a_model", {"trace_rate": "7"}, "its own", "coded"),
    traced("array", [1], "no object"),
    Case(
        "trace_file_of_an_unknown_model_over_grpc",
        Rpc(
            "TraceSetting",
            'model_name: "unknown" settings { key: "trace_file" value { value: "x" } }',
        ),
        "D11",
        "which mistake first?",
    ),
    Case(
        "trace_file_over_grpc",
        Rpc("TraceSetting", 'settings { key: "trace_file" value { value: "x" } }'),
        "D11",
        "cannot be changed",
    ),
    Case(
        "trace_rate_of_nothing_over_grpc",
        Rpc("TraceSetting", 'settings { key: "trace_rate" value { value: "" } }'),
        "D11",
        "no number",
    ),
    # ------------------------------------------------------------------- what would end it
    ends("exits", "import sys\nsys.exit(3)", "SystemExit"),
    ends("exits_with_nought", "import sys\nsys.exit(0)", "SystemExit without a reason"),
    ends("exits_with_a_text", "raise SystemExit('on purpose')", "a reason"),
    ends("is_interrupted", "raise KeyboardInterrupt", "as by Ctrl-C"),
    ends("is_interrupted_with_a_text", "raise KeyboardInterrupt('on purpose')", "with a text"),
    ends("raises_what_is_no_exception", "raise BaseException('on purpose')", "no Exception"),
    ends("ends_a_generator", "raise GeneratorExit", "no Exception"),
    ends("stops_an_iteration", "raise StopIteration(5)", "for iterators"),
    Case(
        "unknown_model_with_a_reserved_path",
        Http("POST", "/v2/models/trace/setting", b"{}"),
        "C08",
        "names that look like paths",
    ),
)
