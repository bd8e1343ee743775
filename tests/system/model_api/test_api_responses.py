"""Answers of models, and what their clients see of them.

The same code was run in Triton 2.51. What could be compared is equal except for the texts of
TypeErrors and docs/recorded-differences.md. That version has neither parameters of responses nor
the number of a datatype, and it crashed in the tests of DLPack and in the one of a request with all
arguments.
"""

from __future__ import annotations

from typing import Any

import pytest
import tritonclient.grpc as grpc_client

from tests.support.probing import REPORT, ErrorResponse, Probe, add_probes
from tests.support.server import Server

pytestmark = pytest.mark.system

SHARED = True


def prepare(server: Server) -> None:
    add_probes(server)


@pytest.fixture
def probe(server: Server) -> Probe:
    return Probe(server)


@pytest.mark.row("A70", "A76")
def test_responses_are_made_of_tensors_or_an_error(probe: Probe) -> None:
    assert [1, False, None, True, "no", {"a": 1}] == probe.run(
        f"""
        good = pb_utils.InferenceResponse([{REPORT}], parameters={{'a': 1}})
        bad = pb_utils.InferenceResponse(error=pb_utils.TritonError('no'))
        return (len(good.output_tensors()), good.has_error(), good.error(), bad.has_error(),
                bad.error().message(), json.loads(good.parameters()))
        """
    )
    assert (
        "TritonModelException: Output tensor for inference response should not be empty."
    ) == probe.run("return pb_utils.InferenceResponse([None])")
    assert [True, "mine"] == probe.run(
        "error = pb_utils.TritonModelException('mine')\n"
        "return isinstance(error, Exception), str(error)"
    )
    assert "TritonModelException: mine" == probe.run("raise pb_utils.TritonModelException('mine')")


@pytest.mark.row("A70", "A75")
def test_with_an_error_tensors_and_parameters_are_dropped(probe: Probe) -> None:
    with pytest.raises(ErrorResponse) as caught:
        probe.infer(
            f"return pb_utils.InferenceResponse([{REPORT}], pb_utils.TritonError('no', "
            "pb_utils.TritonError.NOT_FOUND), {'a': 1})"
        )

    assert "404 no" == str(caught.value)


@pytest.mark.row("A75")
@pytest.mark.parametrize(
    ("name", "number", "status", "grpc_status"),
    [
        ("UNKNOWN", 0, 400, "UNKNOWN"),
        ("INTERNAL", 1, 500, "INTERNAL"),
        ("NOT_FOUND", 2, 404, "NOT_FOUND"),
        ("INVALID_ARG", 3, 400, "INVALID_ARGUMENT"),
        ("UNAVAILABLE", 4, 503, "UNAVAILABLE"),
        ("UNSUPPORTED", 5, 501, "UNIMPLEMENTED"),
        ("ALREADY_EXISTS", 6, 400, "ALREADY_EXISTS"),
        ("CANCELLED", 7, 400, "CANCELLED"),
    ],
)
def test_the_code_of_an_error_reaches_the_client(
    probe: Probe, name: str, number: int, status: int, grpc_status: str
) -> None:
    error = f"pb_utils.TritonError('said so', pb_utils.TritonError.{name})"
    code = f"return pb_utils.InferenceResponse(error={error})"

    with pytest.raises(ErrorResponse) as caught:
        probe.infer(code)
    with pytest.raises(grpc_client.InferenceServerException) as caught_grpc:
        probe.infer_grpc(code)

    assert f"{status} said so" == str(caught.value)
    assert (f"StatusCode.{grpc_status}", "said so") == (
        caught_grpc.value.status(),
        caught_grpc.value.message(),
    )
    assert [number, name, f"__ErrorCode.{name}", "said so"] == probe.run(
        f"e = {error}\nreturn int(e.code()), e.code().name, str(e.code()), e.message()"
    )


@pytest.mark.row("A71")
def test_outputs_that_nobody_asked_for_are_left_out(probe: Probe) -> None:
    other = "pb_utils.Tensor('OTHER', np.zeros(1))"
    both = f"return pb_utils.InferenceResponse([{REPORT}, {other}])"

    def names(answered: Any) -> list[str]:
        return [output["name"] for output in answered["outputs"]]

    assert ["REPORT"] == names(probe.infer(both, outputs=[{"name": "REPORT"}]))
    # Also one that the configuration does not have, where a client names none.
    assert ["REPORT"] == names(probe.infer(both))
    # One that the model did not make is just not there.
    assert [] == names(probe.infer(f"return pb_utils.InferenceResponse([{other}])"))


@pytest.mark.row("A77")
def test_parameters_of_a_response_keep_their_types(probe: Probe) -> None:
    parameters = {"text": "é", "number": -7, "yes": True, "no": False}
    code = f"return pb_utils.InferenceResponse([{REPORT}], parameters={parameters})"

    assert parameters == probe.infer(code)["parameters"]
    over_grpc = probe.infer_grpc(code).parameters
    assert {
        "text": "string_param",
        "number": "int64_param",
        "yes": "bool_param",
        "no": "bool_param",
    } == {name: over_grpc[name].WhichOneof("parameter_choice") for name in parameters}
    for wrong, text in (
        (
            {"a": 0.5},
            "Expect parameters values to have type bool/int/str, found type <class 'float'>",
        ),
        ({1: "a"}, "Expect parameters keys to have type str, found type <class 'int'>"),
    ):
        assert f"TritonModelException: {text}" == probe.run(
            f"return pb_utils.InferenceResponse([], parameters={wrong})"
        )


@pytest.mark.row("A78")
def test_an_error_of_one_response_does_not_end_a_stream(probe: Probe) -> None:
    code = f"""
        sender = request.get_response_sender()
        response = pb_utils.InferenceResponse([{REPORT}])
        sender.send(response)
        sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError('amid')))
        sender.send(response)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return ...
    """
    first, error, last = probe.stream(code, 3)

    assert [b"7"] == first.as_numpy("REPORT").tolist() == last.as_numpy("REPORT").tolist()
    assert "amid" == error.message()
