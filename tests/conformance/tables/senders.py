"""Response senders of models that answer once: their rules, and what a client gets."""

from __future__ import annotations

from tests.conformance.cases import Case, called, coded, events, streamed

REPOSITORY = "main"
SENDER = "sender = request.get_response_sender()\n"
FINAL = "pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
#: Sends an answer first, so that the client hears what the model saw of the error.
ASKED = (
    SENDER
    + "try:\n    {}\nexcept Exception as error:\n"
    + f"    sender.send(say(type(error).__name__, str(error)), {FINAL})\n"
)

CASES = (
    Case(
        "sent_and_final",
        coded(SENDER + f"sender.send(say('sent'), {FINAL})"),
        "A53",
        "the sender in place of the list",
    ),
    Case(
        "sent_and_final_over_grpc",
        called(SENDER + f"sender.send(say('sent'), {FINAL})"),
        "A53",
        "the same over gRPC",
    ),
    Case(
        "sent_then_final",
        coded(SENDER + f"sender.send(say('sent'))\nsender.send(flags={FINAL})"),
        "A72",
        "the flag after the response",
    ),
    Case(
        "sent_an_error",
        coded(
            SENDER + "sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("
            f"'on purpose', pb_utils.TritonError.NOT_FOUND)), {FINAL})"
        ),
        "A75",
        "an error with a code",
    ),
    Case(
        "sent_from_a_thread",
        coded(
            SENDER
            + "def later():\n"
            + f"    sender.send(say('later'), {FINAL})\n"
            + "threading.Thread(target=later).start()"
        ),
        "A72",
        "another thread may send, when execute is through",
    ),
    Case(
        "sent_nothing",
        coded(ASKED.format("sender.send()")),
        "A72",
        "neither response nor flag",
    ),
    Case(
        "sent_an_unknown_flag",
        coded(ASKED.format("sender.send(say(1), 2)")),
        "A72",
        "a flag that does not exist",
    ),
    Case(
        "sent_final_without_a_response",
        coded(ASKED.format(f"sender.send(flags={FINAL})")),
        "A72",
        "the end before the response",
    ),
    Case(
        "sent_a_text",
        coded(ASKED.format("sender.send('text')")),
        "A72",
        "what is sent must be a response",
    ),
    Case(
        "sent_a_text_as_flags",
        coded(ASKED.format("sender.send(say(1), 'final')")),
        "A72",
        "flags are a number",
    ),
    Case(
        "sent_twice",
        (
            coded(
                SENDER + "sender.send(say('once'))\n"
                "try:\n    sender.send(say('twice'))\n"
                "except Exception as error:\n    self.error = (type(error).__name__, str(error))\n"
                f"sender.send(flags={FINAL})"
            ),
            coded("return [say(*self.error)]"),
        ),
        "A72",
        "only one response",
    ),
    Case(
        "sent_after_the_end",
        (
            coded(
                SENDER + f"sender.send(say('once'), {FINAL})\n"
                "try:\n    sender.send(say('twice'))\n"
                "except Exception as error:\n    self.error = (type(error).__name__, str(error))"
            ),
            coded("return [say(*self.error)]"),
        ),
        "A72",
        "the sender is closed",
    ),
    Case(
        "raised_after_sending",
        (
            coded(SENDER + f"sender.send(say('sent'), {FINAL})\nraise ValueError('on purpose')"),
            coded("return [say('well')]"),
        ),
        "A24",
        "what was sent stays the answer",
    ),
    Case(
        "raised_before_sending",
        coded(SENDER + "raise ValueError('on purpose')"),
        "A24",
        "a sender that was fetched changes nothing",
    ),
    Case(
        "sent_and_returned",
        (
            coded(SENDER + f"sender.send(say('sent'), {FINAL})\nreturn [say('returned')]"),
            coded("return [say('well')]"),
        ),
        "A53",
        "what was sent stays the answer",
    ),
    Case(
        "sender_is_not_cancelled",
        coded(SENDER + f"sender.send(say(sender.is_cancelled()), {FINAL})"),
        "A73",
        "nobody has cancelled it",
    ),
    Case(
        "generate_of_what_is_sent",
        events(SENDER + f"sender.send(say('sent'), {FINAL})", model="coded"),
        "C65",
        "one event",
    ),
    Case(
        "stream_of_what_is_sent",
        streamed(SENDER + f"sender.send(say('sent'), {FINAL})", model="coded"),
        "D33",
        "one message, and it is the last",
    ),
    Case(
        "stream_of_what_is_sent_before_the_end",
        streamed(SENDER + f"sender.send(say('sent'))\nsender.send(flags={FINAL})", model="coded"),
        "D33",
        "one message, and the end by itself",
    ),
)
