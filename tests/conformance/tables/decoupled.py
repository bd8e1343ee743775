"""Models that answer as often as they like, over both streams and over what cannot carry them."""

from __future__ import annotations

from tests.conformance.cases import (
    Case,
    Stream,
    called,
    code,
    coded,
    elements,
    events,
    infer,
    message,
    post,
    streamed,
)

REPOSITORY = "main"
MODEL = "coded_decoupled"
FINAL = "pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
SENDER = "sender = request.get_response_sender()\n"
END = f"sender.send(flags={FINAL})"
ERROR = (
    "sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError('on purpose', "
    "pb_utils.TritonError.NOT_FOUND)))\n"
)
TWO = SENDER + "sender.send(say(1))\nsender.send(say(2))\n" + END
LAST_IS_FINAL = SENDER + f"sender.send(say(1))\nsender.send(say(2), {FINAL})"
NONE = SENDER + END
AMID = SENDER + "sender.send(say(1))\n" + ERROR + "sender.send(say(2))\n" + END
FIRST = SENDER + ERROR + "sender.send(say(1))\n" + END
RAISES = "raise ValueError('on purpose')"
RAISES_AMID = SENDER + "sender.send(say(1))\n" + RAISES
WANTS_EMPTY = 'parameters { key: "triton_enable_empty_final_response" value { bool_param: true } }'


def wrong(statement: str) -> str:
    """The error that the statement raises is the response."""
    return (
        SENDER
        + f"try:\n    {statement}\nexcept Exception as error:\n"
        + "    sender.send(say(type(error).__name__, str(error)))\n"
        + END
    )


def both(name: str, text: str, row: str, why: str) -> tuple[Case, Case]:
    return (
        Case(f"{name}_over_http", events(text), row, why),
        Case(f"{name}_over_grpc", streamed(text, more='id: "7"'), row, why),
    )


CASES = (
    *both("two_responses", TWO, "D33", "each with whether it is the last"),
    *both("last_response_is_final", LAST_IS_FINAL, "D33", "the flag with the last response"),
    *both("no_response", NONE, "D34", "nothing but the end"),
    *both("error_amid_responses", AMID, "A78", "the stream goes on after an error"),
    *both("error_first", FIRST, "C64", "the first response decides the status"),
    *both("exception_in_a_stream", RAISES, "A24", "the request fails, and ends"),
    *both("exception_amid_a_stream", RAISES_AMID, "A24", "what was sent has arrived"),
    *both("returned_a_list", SENDER + END + "\nreturn [say(1)]", "A25", "must return None"),
    *both("returned_a_list_and_sent_nothing", "return [say(1)]", "A25", "must return None"),
    Case(
        "empty_final_that_is_wanted",
        streamed(TWO, more=WANTS_EMPTY),
        "D34",
        "the end as a message of its own",
    ),
    Case(
        "empty_final_of_no_response",
        streamed(NONE, more=WANTS_EMPTY + ' id: "e"'),
        "D34",
        "nothing but the end, and that is wanted",
    ),
    Case(
        "empty_final_of_a_model_that_answers_once",
        streamed("return [say(1)]", model="coded", more=WANTS_EMPTY),
        "D34",
        "no empty message",
    ),
    Case(
        "empty_final_that_is_no_boolean",
        streamed(
            TWO,
            more='parameters { key: "triton_enable_empty_final_response" '
            "value { int64_param: 1 } }",
        ),
        "D23",
        "a flag must be a boolean",
    ),
    Case(
        "parameters_in_a_stream",
        streamed(
            SENDER
            + "sender.send(pb_utils.InferenceResponse([], parameters={'p': 1, 'q': 'x'}))\n"
            + END
        ),
        "A77",
        "beside triton_final_response",
    ),
    Case(
        "parameters_in_events",
        events(
            SENDER
            + "sender.send(pb_utils.InferenceResponse([], parameters={'p': 1, 'q': 'x'}))\n"
            + END
        ),
        "C62",
        "among the members of the object",
    ),
    Case(
        "response_without_tensors_in_a_stream",
        streamed(SENDER + "sender.send(pb_utils.InferenceResponse([]))\n" + END),
        "D34",
        "an empty response is not the end",
    ),
    Case(
        "response_without_tensors_in_events",
        events(SENDER + "sender.send(pb_utils.InferenceResponse([]))\n" + END),
        "C64",
        "an event without outputs",
    ),
    Case(
        "outputs_in_a_stream_that_are_not_asked_for",
        streamed(
            SENDER + "sender.send(pb_utils.InferenceResponse(tensors(np.ones(1, 'f4'), "
            "np.array([b'x'], dtype='O'))))\n" + END,
            more='outputs { name: "Y" }',
        ),
        "A71",
        "taken away in streams too",
    ),
    # ----------------------------------------------------------------------- one by one
    Case(
        "two_requests_in_a_stream",
        streamed(LAST_IS_FINAL, more='id: "a"')._replace(
            messages=[
                message("coded", ("CODE", "BYTES", [1], elements(text)), more=f'id: "{name}"')
                for name, text in (
                    ("a", "return [say(1)]"),
                    ("b", RAISES),
                    ("c", "return [say(3)]"),
                )
            ]
        ),
        "D31",
        "in the order of the requests, errors too",
    ),
    Case(
        "unknown_model_in_a_stream",
        Stream([message("unknown", more='id: "u"'), message("coded", more='id: "v"')]),
        "D30",
        "an error for each, and the stream goes on",
    ),
    Case(
        "unknown_version_in_a_stream",
        Stream([message("coded", more='model_version: "9"')]),
        "D30",
        "a version that is not there",
    ),
    Case(
        "empty_stream",
        Stream([]),
        "D32",
        "no request, no answer",
    ),
    Case(
        "stream_that_wants_its_errors_as_status",
        Stream(
            [message("unknown", more='id: "u"'), message("coded", more='id: "v"')],
            {"triton_grpc_error": "true"},
        ),
        "D35",
        "the first error ends it",
    ),
    Case(
        "error_of_a_model_as_status",
        Stream(
            [message(MODEL, ("CODE", "BYTES", [1], elements(AMID)))], {"triton_grpc_error": "true"}
        ),
        "D35",
        "with the code of the model",
    ),
    # ------------------------------------------------------------------- where it cannot go
    Case(
        "decoupled_on_infer",
        infer(MODEL, code(TWO)),
        "C29",
        "one answer is all that HTTP has",
    ),
    Case(
        "decoupled_on_unary_grpc",
        called(TWO, model=MODEL),
        "D04",
        "one answer is all that a unary call has",
    ),
    Case(
        "decoupled_on_generate_once",
        post(f"/v2/models/{MODEL}/generate", {"CODE": SENDER + f"sender.send(say(1), {FINAL})"}),
        "C63",
        "one response is enough",
    ),
    Case(
        "decoupled_on_generate_twice",
        post(f"/v2/models/{MODEL}/generate", {"CODE": TWO}),
        "C63",
        "two are too many",
    ),
    Case(
        "decoupled_on_generate_never",
        post(f"/v2/models/{MODEL}/generate", {"CODE": NONE}),
        "C63",
        "none is too few",
    ),
    Case(
        "decoupled_on_generate_with_an_error",
        post(f"/v2/models/{MODEL}/generate", {"CODE": SENDER + ERROR + END}),
        "C63",
        "an error is a response",
    ),
    # ------------------------------------------------------------------ rules of senders
    Case(
        "decoupled_sent_nothing",
        events(wrong("sender.send()")),
        "A72",
        "neither response nor flag",
    ),
    Case(
        "decoupled_sent_an_unknown_flag",
        events(wrong("sender.send(say(1), 4)")),
        "A72",
        "a flag that does not exist",
    ),
    Case(
        "decoupled_sent_after_the_end",
        (
            events(
                SENDER + END + "\ntry:\n    sender.send(say(1))\n"
                "except Exception as error:\n    self.error = (type(error).__name__, str(error))"
            ),
            events(SENDER + f"sender.send(say(*self.error), {FINAL})"),
        ),
        "A72",
        "the sender is closed",
    ),
    Case(
        "decoupled_ended_twice",
        (
            events(
                SENDER + END + f"\ntry:\n    {END}\n"
                "except Exception as error:\n    self.error = (type(error).__name__, str(error))"
            ),
            events(SENDER + f"sender.send(say(*self.error), {FINAL})"),
        ),
        "A72",
        "the end comes once",
    ),
    Case(
        "decoupled_from_a_thread",
        streamed(
            SENDER
            + "def later():\n    for i in range(3):\n        sender.send(say(i))\n"
            + f"    {END}\n"
            + "threading.Thread(target=later).start()"
        ),
        "A25",
        "senders outlive execute",
    ),
    Case(
        "decoupled_coroutine",
        streamed(
            SENDER + f"await asyncio.sleep(0)\nsender.send(say(1))\n{END}",
            model="coded_async_decoupled",
        ),
        "A26",
        "goes on in the background",
    ),
    Case(
        "sender_of_an_input_that_is_wrong",
        streamed("x", more="")._replace(
            messages=[message(MODEL, ("CODE", "INT32", [1], b"\0\0\0\0"), more='id: "w"')]
        ),
        "D30",
        "refused before the model runs",
    ),
    Case(
        "generate_stream_of_an_unknown_model",
        events(TWO, model="unknown"),
        "C66",
        "plain JSON with a status",
    ),
    Case(
        "generate_stream_of_a_model_that_answers_once",
        events("return [say(1)]", model="coded"),
        "C65",
        "one event",
    ),
    Case(
        "generate_stream_of_an_error_at_once",
        events(
            "error = pb_utils.TritonError('x', pb_utils.TritonError.UNSUPPORTED)\n"
            "return [pb_utils.InferenceResponse(error=error)]",
            model="coded",
        ),
        "C64",
        "its status is the answer's",
    ),
    Case(
        "ask_a_decoupled_model_for_its_sender_twice",
        events(
            SENDER + "other = request.get_response_sender()\n"
            f"sender.send(say(1))\nother.send(say(2))\nother.send(flags={FINAL})"
        ),
        "A53",
        "two senders of one request",
    ),
    Case(
        "coded_on_generate",
        post("/v2/models/coded/generate", {"CODE": "return [say(1, 2)]", "id": "g"}),
        "C62",
        "an output of two elements is a list",
    ),
    Case(
        "raised_on_generate",
        post("/v2/models/coded/generate", {"CODE": RAISES}),
        "C66",
        "an exception",
    ),
    Case(
        "code_that_is_no_code",
        coded("return [say(1)]", model=MODEL),
        "C29",
        "refused before anything else",
    ),
)
