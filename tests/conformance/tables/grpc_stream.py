"""ModelStreamInfer: several models on one stream, order, errors per message, ends."""

from __future__ import annotations

from tests.conformance.cases import Bytes, Case, Stream, elements, message, streamed

REPOSITORY = "grpc"
SENDER = "sender = request.get_response_sender()\n"
FINAL = "pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
END = f"sender.send(flags={FINAL})"
WANTS_EMPTY = 'parameters { key: "triton_enable_empty_final_response" value { bool_param: true } } '
SLOW = "import time; time.sleep(0.2)\nreturn [say('slow')]"
SLOW_DECOUPLED = "import time; time.sleep(0.3)\n" + SENDER + "sender.send(say(1))\n" + END
AS_STATUS = {"triton_grpc_error": "true"}


def ask(text: str, model: str = "coded", more: str = "") -> str:
    return message(model, ("CODE", "BYTES", [1], elements(text)), more=more)


def sending(*values: str) -> str:
    """Return the code of a decoupled model that sends these."""
    return SENDER + "".join(f"sender.send(say({value}))\n" for value in values) + END


def version(text: str) -> str:
    tensor = ("X", "FP32", [1], bytes(4))
    return message("versions", tensor, more=f'model_version: "{text}" id: "{text}"')


SUM = message(
    "add_sub",
    ("INPUT0", "FP32", [1, 16], bytes(64)),
    ("INPUT1", "FP32", [1, 16], bytes(64)),
    more='id: "sum"',
)
GOOD = ask("return [say('good')]", more='id: "good"')
RAISES = ask("raise ValueError('no')", more='id: "raises"')

CASES = (
    Case("stream_of_two_models", Stream([GOOD, SUM, GOOD]), "D31", "answered in their order"),
    Case(
        "stream_where_the_first_is_slow",
        Stream([ask(SLOW, more='id: "slow"'), SUM]),
        "D31",
        "who is through first waits",
    ),
    Case(
        "stream_where_a_refusal_waits",
        Stream([ask(SLOW, more='id: "slow"'), message("nobody", more='id: "nobody"')]),
        "D31",
        "so does an error",
    ),
    Case("stream_of_versions", Stream([version("1"), version("2"), version("")]), "D31", "mixed"),
    Case("stream_of_a_version_that_is_none", Stream([version("3"), GOOD]), "D30", "goes on"),
    Case("stream_of_a_version_that_is_a_text", Stream([version("x"), GOOD]), "D30", "goes on"),
    Case(
        "stream_of_decoupled_and_plain",
        Stream([ask(SLOW_DECOUPLED, "coded_decoupled", 'id: "slow"'), GOOD]),
        "D31",
        "decoupled ones keep no turn",
        is_timed=True,
    ),
    Case("stream_with_an_exception", Stream([RAISES, GOOD]), "D30", "goes on"),
    Case("stream_with_an_exception_last", Stream([GOOD, RAISES]), "D30", "the order"),
    Case("stream_without_an_id", Stream([ask("return [say(1)]")]), "D26", "none comes back"),
    Case("stream_with_empty_message", Stream(["", GOOD]), "D30", "no model is named"),
    Case(
        "stream_without_data",
        Stream(['model_name: "coded" inputs { name: "CODE" datatype: "BYTES" shape: [1] }', GOOD]),
        "D30",
        "data that are missing",
    ),
    Case(
        "stream_with_a_wrong_size",
        Stream([message("coded", ("CODE", "BYTES", [2], elements("a"))), GOOD]),
        "D30",
        "one text of two",
    ),
    Case(
        "stream_with_a_wrong_type",
        Stream([message("coded", ("CODE", "INT8", [1], b"a")), GOOD]),
        "D30",
        "not the model's type",
    ),
    Case(
        "stream_with_a_reserved_parameter",
        Stream([ask("x", more='parameters { key: "triton_x" value { bool_param: true } }'), GOOD]),
        "D30",
        "a name that is Triton's",
    ),
    Case(
        "stream_with_a_wrong_parameter",
        Stream([ask("x", more='parameters { key: "timeout" value { bool_param: true } }'), GOOD]),
        "D30",
        "a kind that is wrong",
    ),
    Case(
        "stream_with_an_unknown_output",
        Stream([ask("x", more='id: "o" outputs { name: "Z" }'), GOOD]),
        "D30",
        "an output that is not there",
    ),
    Case(
        "stream_with_an_unknown_region",
        Stream(
            [
                'model_name: "coded" inputs { name: "CODE" datatype: "BYTES" shape: [1] '
                'parameters { key: "shared_memory_region" value { string_param: "nowhere" } } '
                'parameters { key: "shared_memory_byte_size" value { int64_param: 8 } } }',
                GOOD,
            ]
        ),
        "D30",
        "never registered",
    ),
    Case(
        "stream_of_an_output_of_two",
        Stream(
            [
                ask(
                    "return [pb_utils.InferenceResponse("
                    "[*say(1).output_tensors(), *tensors(np.ones(2, 'f4'))])]",
                    more='outputs { name: "Y" }',
                )
            ]
        ),
        "D22",
        "what was asked for",
    ),
    # ------------------------------------------------------------------ decoupled
    Case("decoupled_three_over_grpc", streamed(sending("1", "2", "3")), "D33", "only the end is"),
    Case(
        "decoupled_three_and_an_empty_one",
        streamed(sending("1", "2", "3"), more=WANTS_EMPTY + 'id: "e"'),
        "D34",
        "the empty one is final",
    ),
    Case(
        "decoupled_final_with_the_response",
        streamed(SENDER + f"sender.send(say(1), {FINAL})", more='id: "d" ' + WANTS_EMPTY),
        "D33",
        "the only one",
    ),
    Case(
        "decoupled_error_first",
        streamed(
            SENDER
            + "sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError('on purpose')))\n"
            + END,
            more=WANTS_EMPTY + 'id: "e"',
        ),
        "D30",
        "an error that is not final",
    ),
    Case(
        "decoupled_error_that_is_final",
        streamed(
            SENDER
            + "sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError('on purpose', "
            f"pb_utils.TritonError.NOT_FOUND)), {FINAL})",
            more='id: "e"',
        ),
        "D30",
        "an error that is",
    ),
    Case(
        "decoupled_exception_over_grpc",
        streamed("raise ValueError('no')", more='id: "x" ' + WANTS_EMPTY),
        "D30",
        "raised before anything was sent",
    ),
    Case(
        "decoupled_unknown_input",
        Stream([message("coded_decoupled", ("Z", "FP32", [1], bytes(4)), more='id: "z"')]),
        "D30",
        "refused before the model",
    ),
    Case(
        "decoupled_without_inputs",
        Stream([message("coded_decoupled", more=WANTS_EMPTY + 'id: "w"')]),
        "D34",
        "refused, and an empty end was wanted",
    ),
    # ------------------------------------------------------------ errors as status
    *(
        Case(
            f"error_as_status_{name}",
            Stream([RAISES, GOOD] if name != "true_and_well" else [GOOD], {"triton_grpc_error": v}),
            "D35",
            why,
        )
        for name, v, why in (
            ("false", "false", "the same as none"),
            ("in_capitals", "True", "only the text true"),
            ("one", "1", "only the text true"),
            ("true", "true", "the first error ends the stream"),
            ("true_and_well", "true", "no error, no difference"),
        )
    ),
    *(
        Case(
            f"error_as_status_{code.lower()}",
            Stream(
                [
                    ask(
                        "return [pb_utils.InferenceResponse(error=pb_utils.TritonError("
                        f"'on purpose', pb_utils.TritonError.{code}))]"
                    )
                ],
                AS_STATUS,
            ),
            "D40",
            "the code of the model",
        )
        for code in (
            "UNKNOWN",
            "INTERNAL",
            "NOT_FOUND",
            "INVALID_ARG",
            "UNAVAILABLE",
            "UNSUPPORTED",
            "ALREADY_EXISTS",
            "CANCELLED",
        )
    ),
    Case(
        "error_as_status_after_answers",
        Stream([GOOD, GOOD, RAISES], AS_STATUS),
        "D35",
        "what was answered before is there",
    ),
    Case(
        "stream_of_no_message",
        Bytes("/inference.GRPCInferenceService/ModelStreamInfer", b"\xff\xff\xff"),
        "D30",
        "no protobuf",
    ),
    # Last, because real Triton mixes what it has cancelled into the stream that comes next.
    Case(
        "error_as_status_amid_a_slow_one",
        Stream([ask(SLOW), ask("raise ValueError('no')", "coded_other")], AS_STATUS),
        "D35",
        "whether the one before is answered",
        is_timed=True,
    ),
    Case(
        "decoupled_error_as_status_amid_a_slow_one",
        Stream([ask(SLOW), ask("raise ValueError('no')", "coded_decoupled")], AS_STATUS),
        "D35",
        "whether the one before is answered",
        is_timed=True,
    ),
)
