"""`zmqtriton.testing`: models are loaded, asked and finalized in the test's own process."""

from __future__ import annotations

import logging
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.server import MODELS_DIRECTORY
from zmqtriton_extras.authoring.testing import (
    InferenceRequest,
    OutputError,
    ZmqTritonError,
    load_model,
)

pytestmark = pytest.mark.slow

#: One input and one output of one float per element of a batch.
CONFIG = """\
backend: "python"
max_batch_size: 4
input [ { name: "X", data_type: TYPE_FP32, dims: [ 1 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
ONE = np.ones((1, 1), np.float32)

WriteModel = Callable[..., Path]


@pytest.fixture
def write_model(tmp_path: Path) -> WriteModel:
    """Write a model of which the test says the methods; return its directory."""

    def write(*methods: str, config: str = CONFIG, name: str = "mine") -> Path:
        directory = tmp_path / name
        (directory / "1").mkdir(parents=True)
        (directory / "config.pbtxt").write_text(config)
        (directory / "1" / "model.py").write_text(
            "import numpy as np\nimport triton_python_backend_utils as pb_utils\n\n"
            "class TritonPythonModel:\n"
            + "\n".join(textwrap.indent(textwrap.dedent(one), "    ") for one in methods)
        )
        return directory

    return write


def answering(expression: str, name: str = "Y") -> str:
    """Return an execute() that answers each request with an array made of its input x."""
    return f"""
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("{name}", {expression})]))
        return responses
    """


def test_a_request_is_answered_with_arrays() -> None:
    numbers = np.arange(32, dtype=np.float32).reshape(2, 16)

    with load_model(MODELS_DIRECTORY / "add_sub") as model:
        outputs = model.infer(INPUT0=numbers, INPUT1=numbers)

    assert (2 * numbers).tolist() == outputs["OUTPUT0"].tolist()
    assert {"OUTPUT0", "OUTPUT1"} == set(outputs)


def test_initialize_gets_what_a_stub_gives_it(write_model: WriteModel) -> None:
    directory = write_model(
        """
        def initialize(self, args):
            self.args = {k: v for k, v in args.items() if k != "model_config"}
            assert '"max_batch_size":4' in args["model_config"].replace(" ", "")

        def execute(self, requests):
            text = repr(sorted(self.args.items()))
            return [pb_utils.InferenceResponse(error=pb_utils.TritonError(text))]
        """
    )

    with load_model(directory) as model, pytest.raises(ZmqTritonError) as refused:
        model.infer(X=ONE)

    expected = {
        "model_instance_kind": "CPU",
        "model_instance_name": "mine_0_0",
        "model_instance_device_id": "0",
        "model_repository": str(directory),
        "model_version": "1",
        "model_name": "mine",
    }
    assert repr(sorted(expected.items())) == refused.value.text


def test_a_model_completes_its_configuration(write_model: WriteModel) -> None:
    directory = write_model(
        """
        @staticmethod
        def auto_complete_config(config):
            config.set_max_batch_size(0)
            config.add_input({"name": "X", "data_type": "TYPE_INT32", "dims": [-1]})
            config.add_output({"name": "Y", "data_type": "TYPE_INT32", "dims": [-1]})
            return config
        """,
        answering("x + 1"),
        config="",
    )

    with load_model(directory) as model:
        assert [2, 3] == model.infer(X=[1, 2])["Y"].tolist()
        assert ["X"] == [entry["name"] for entry in model.config["input"]]


def test_requests_of_one_batch_come_to_execute_together(write_model: WriteModel) -> None:
    directory = write_model(answering("x * len(requests)"))

    with load_model(directory) as model:
        responses = model.execute(
            [InferenceRequest({"X": ONE}, request_id="a"), InferenceRequest({"X": 2 * ONE})]
        )

    assert [2.0, 4.0] == [response.outputs["Y"].item() for response in responses]
    assert ["a", ""] == [response.request_id for response in responses]


def test_a_batch_that_no_server_would_make_is_refused(write_model: WriteModel) -> None:
    directory = write_model(answering("x"))

    with load_model(directory) as model, pytest.raises(ZmqTritonError, match="max_batch_size"):
        model.execute([{"X": ONE}] * 5)


def test_a_batch_that_a_server_would_split_is_split(write_model: WriteModel) -> None:
    split = 'parameters { key: "SPLIT_BATCHES" value { string_value: "true" } }'
    directory = write_model(answering("x * 0 + len(x)"), config=CONFIG + split)

    with load_model(directory) as model:
        assert [4, 4, 4, 4, 1] == model.infer(X=np.ones((5, 1)))["Y"].ravel().tolist()
        with pytest.raises(ZmqTritonError, match="max_batch_size"):
            model.execute([{"X": ONE}] * 5)


def test_an_error_of_the_model_is_raised_with_its_cause(write_model: WriteModel) -> None:
    directory = write_model(
        """
        def execute(self, requests):
            raise KeyError("lost")
        """
    )

    with load_model(directory) as model, pytest.raises(ZmqTritonError) as failed:
        model.infer(X=ONE)

    assert "message: KeyError: 'lost'" in failed.value.text
    assert isinstance(failed.value.__cause__, KeyError)
    assert failed.value.__cause__.__traceback__ is not None
    code = failed.value.__cause__.__traceback__.tb_frame.f_code
    assert str(directory / "1" / "model.py") == code.co_filename


@pytest.mark.parametrize(
    ("name", "array", "others", "expected"),
    [
        ("INPUT", "1", "", "asked for 'INPUT', which its configuration does not name; it names X"),
        ("X", "1.0", "", "sent FP64 for 'Y', which its configuration declares as FP32"),
        ("X", "x.as_numpy()", "", None),
        ("X", "", "Z", "sent 'Z', which its configuration does not name; it names Y"),
        ("X", "x.as_numpy()", "Z", None),
    ],
)
def test_code_that_names_other_tensors_than_its_configuration_is_told_once(
    write_model: WriteModel,
    caplog: pytest.LogCaptureFixture,
    *,
    name: str,
    array: str,
    others: str,
    expected: str | None,
) -> None:
    tensors = {"Y": array and f"np.full((1, 1), {array})", others: others and "np.ones(1)"}
    made = "".join(f"pb_utils.Tensor('{n}', {made})," for n, made in tensors.items() if made)
    directory = write_model(
        f"""
        def execute(self, requests):
            x = pb_utils.get_input_tensor_by_name(requests[0], "{name}")
            x.name()
            return [pb_utils.InferenceResponse([{made}])]
        """
    )

    with load_model(directory) as model:
        for _ in range(2):
            try:
                model.infer(X=ONE)
            except (ZmqTritonError, OutputError) as error:
                notes = getattr(error, "__notes__", [])

    logged = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert [expected] * bool(expected) == [text.partition(" model 'mine' ")[2] for text in logged]
    if name == "INPUT":
        assert [f"its code {expected}"] == notes


def test_a_model_without_batches_may_take_and_give_scalars(write_model: WriteModel) -> None:
    config = CONFIG.replace("max_batch_size: 4\n", "")
    config = config.replace("dims: [ 1 ]", "dims: [ 1 ] reshape { shape: [ ] }")

    with load_model(write_model(answering("np.asarray(x + x.ndim + 1)"), config=config)) as model:
        assert [2.0] == model.infer(X=ONE[0])["Y"].tolist()


def test_a_request_that_does_not_fit_is_refused_in_triton_s_words() -> None:
    with (
        load_model(MODELS_DIRECTORY / "add_sub") as model,
        pytest.raises(
            ZmqTritonError, match="unexpected inference input 'LEFT' for model 'add_sub'"
        ),
    ):
        model.infer(LEFT=np.ones((1, 16), np.float32), INPUT1=np.ones((1, 16), np.float32))


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (answering("x.astype(np.float64)"), "is FP64, and its configuration says FP32"),
        (answering("x[0]"), r"has the shape \[1\], but its configuration says \[1, 1\], of which"),
        (answering("np.concatenate([x, x])"), r"has the shape \[2, 1\]"),
        (answering("x", name="Z"), "has made an output 'Z', which is not in its configuration"),
    ],
)
def test_an_output_that_is_not_as_configured_is_found(
    write_model: WriteModel, code: str, reason: str
) -> None:
    with load_model(write_model(code)) as model, pytest.raises(OutputError, match=reason):
        model.infer(X=ONE)


def test_a_decoupled_model_answers_with_a_stream_from_any_thread(write_model: WriteModel) -> None:
    directory = write_model(
        """
        def execute(self, requests):
            import threading
            for request in requests:
                sender = request.get_response_sender()
                count = int(pb_utils.get_input_tensor_by_name(request, "X").as_numpy().item())
                threading.Thread(target=self.answer, args=(sender, count)).start()

        def answer(self, sender, count):
            for index in range(count):
                tensor = pb_utils.Tensor("Y", np.array([[index]], np.float32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """,
        config=CONFIG + DECOUPLED,
    )

    with load_model(directory) as model:
        streamed = [outputs["Y"].item() for outputs in model.stream(X=3 * ONE)]
        streams = model.execute_streams([{"X": ONE}, {"X": 0 * ONE}])
        with pytest.raises(ZmqTritonError, match="is decoupled: use stream"):
            model.infer(X=ONE)

    assert [0.0, 1.0, 2.0] == streamed
    assert [1, 0] == [len(responses) for responses in streams]


@pytest.mark.parametrize("config", [CONFIG, CONFIG + DECOUPLED])
def test_coroutines_are_awaited(write_model: WriteModel, config: str) -> None:
    directory = write_model(
        """
        async def execute(self, requests):
            import asyncio
            await asyncio.sleep(0.001)
            [request] = requests
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            response = pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + 1)])
            if not self.is_decoupled:
                return [response]
            final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            request.get_response_sender().send(response, final)

        def initialize(self, args):
            import json
            config = json.loads(args["model_config"])
            self.is_decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        """,
        config=config,
    )

    with load_model(directory) as model:
        assert [2.0] == [outputs["Y"].item() for outputs in model.stream(X=ONE)]


def test_sequences_get_their_controls_and_their_states() -> None:
    with load_model(MODELS_DIRECTORY / "sequences") as model:
        requests = [
            InferenceRequest({"VALUE": [[2]]}, correlation_id=7, sequence_start=True),
            InferenceRequest({"VALUE": [[3]]}, correlation_id=7, sequence_end=True),
        ]
        answers = [model.infer(request) for request in requests]
        with pytest.raises(ZmqTritonError, match="must specify a non-zero or non-empty"):
            model.infer(VALUE=[[1]])

    assert [2, 5] == [outputs["SUM"].item() for outputs in answers]
    assert b'"END": ["bool", [1, 1], [true]]' in answers[1]["REPORT"].item()


def test_the_states_that_a_server_keeps_are_kept() -> None:
    with load_model(MODELS_DIRECTORY / "stateful") as model:
        sums = [
            model.infer(
                InferenceRequest(
                    {"VALUE": [[2]]}, correlation_id=sequence, sequence_start=s, sequence_end=e
                )
            )["AFTER"].item()
            for sequence, s, e in [(1, True, False), (2, True, False), (1, False, True)]
        ]

    assert [2, 2, 4] == [total - sums[0] + 2 for total in sums]


def test_a_request_may_be_executed_in_steps(write_model: WriteModel) -> None:
    directory = write_model(
        """
        def execute(self, requests):
            return [self.step(request) for request in requests]

        def initialize(self, args):
            self.steps = {}

        def step(self, request):
            key, started = request.correlation_id(), request.flags() & 1
            self.steps[key] = step = 1 if started else self.steps[key] + 1
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if step < x.item():
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                return None
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", 0 * x + step)])
        """,
        config=CONFIG + "sequence_batching { iterative_sequence: true }\n",
    )

    with load_model(directory) as model:
        first, second = model.execute([{"X": 3 * ONE}, {"X": ONE}])

    assert [3.0, 1.0] == [first.outputs["Y"].item(), second.outputs["Y"].item()]


def test_a_stream_that_is_left_is_cancelled(write_model: WriteModel) -> None:
    directory = write_model(
        """
        def execute(self, requests):
            import threading
            [request] = requests
            self.thread = threading.Thread(target=self.answer, args=(request,))
            self.thread.start()

        def answer(self, request):
            sender = request.get_response_sender()
            while not request.is_cancelled():
                request.progress(0.5)
                tensor = pb_utils.Tensor("Y", np.ones((1, 1), np.float32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

        def finalize(self):
            self.thread.join(60)
            assert not self.thread.is_alive()
        """,
        config=CONFIG + DECOUPLED,
    )

    with load_model(directory) as model:
        responses = model.stream(X=ONE)
        assert 1.0 == next(responses)["Y"].item()
        responses.close()


CALLING = """
    def execute(self, requests):
        [request] = requests
        asked = pb_utils.InferenceRequest(
            model_name="other", requested_output_names=["Y"], inputs=request.inputs()
        )
        response = asked.exec()
        if response.has_error():
            return [pb_utils.InferenceResponse(error=response.error())]
        return [pb_utils.InferenceResponse(response.output_tensors())]
"""


def test_functions_answer_for_models_that_are_called(write_model: WriteModel) -> None:
    directory = write_model(CALLING)

    with load_model(directory, bls={"other": lambda inputs: {"Y": inputs["X"] * 5}}) as model:
        assert 5.0 == model.infer(X=ONE)["Y"].item()


def test_models_that_are_loaded_answer_each_other(write_model: WriteModel) -> None:
    caller = write_model(CALLING, name="caller")
    other = write_model(answering("x * 7"), name="other")

    with load_model(other) as answerer, load_model(caller, bls={"other": answerer}) as model:
        assert 7.0 == model.infer(X=ONE)["Y"].item()


def test_a_call_that_no_function_answers_says_what_to_do(write_model: WriteModel) -> None:
    with (
        load_model(write_model(CALLING)) as model,
        pytest.raises(ZmqTritonError, match=r"calls 'other', .*bls=\{'other': function\}"),
    ):
        model.infer(X=ONE)


def test_a_called_model_may_fail_and_a_wrong_function_fails_the_test(
    write_model: WriteModel,
) -> None:
    def fail(inputs: object) -> dict[str, object]:
        raise errors.pop()

    errors = [AssertionError("wrong input"), ZmqTritonError("out of order")]
    with load_model(write_model(CALLING), bls={"other": fail}) as model:
        with pytest.raises(ZmqTritonError, match=r"^out of order$"):
            model.infer(X=ONE)
        with pytest.raises(AssertionError, match="wrong input"):
            model.infer(X=ONE)


def test_coroutines_read_streams_of_called_models(write_model: WriteModel) -> None:
    directory = write_model(
        """
        async def execute(self, requests):
            [request] = requests
            asked = pb_utils.InferenceRequest(
                model_name="other", requested_output_names=["Y"], inputs=request.inputs()
            )
            total = 0
            for response in await asked.async_exec(decoupled=True):
                for tensor in response.output_tensors():
                    total = total + tensor.as_numpy()
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", total)])]
        """
    )

    with load_model(directory, bls={"other": lambda inputs: [{"Y": inputs["X"]}] * 3}) as model:
        assert 3.0 == model.infer(X=ONE)["Y"].item()


def test_finalize_is_called_and_nothing_is_left(
    write_model: WriteModel, caplog: pytest.LogCaptureFixture
) -> None:
    directory = write_model(
        """
        def finalize(self):
            pb_utils.Logger.log_error("good bye")
        """
    )
    path, modules = sys.path.copy(), set(sys.modules)

    with load_model(directory):
        assert str(directory / "1") in sys.path

    assert ["good bye"] == [record.message.split(" ", 1)[1] for record in caplog.records]
    assert path == sys.path
    assert "1.model" not in set(sys.modules) - modules


def test_what_a_model_logs_is_logged(
    write_model: WriteModel, caplog: pytest.LogCaptureFixture
) -> None:
    directory = write_model(
        """
        def initialize(self, args):
            pb_utils.Logger.log_warn("half full")
        """,
        answering("x"),
    )

    with caplog.at_level(logging.INFO, "zmqtriton.testing"), load_model(directory):
        pass

    assert any("half full" in record.message for record in caplog.records)


def test_models_are_apart_even_with_modules_of_the_same_name(write_model: WriteModel) -> None:
    directories = [
        write_model("import helper", answering("x * self.helper.FACTOR"), name=name)
        for name in ("first", "second")
    ]
    for directory, factor in zip(directories, (2, 3), strict=True):
        (directory / "1" / "helper.py").write_text(f"FACTOR = {factor}\n")

    with load_model(directories[0]) as first, load_model(directories[1]) as second:
        assert [2.0, 3.0] == [model.infer(X=ONE)["Y"].item() for model in (first, second)]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("nowhere", "there is no model directory"),
        ("", "it is a repository of models, name one of them: .*add_sub"),
        ("doubled", "is an ensemble"),
    ],
)
def test_what_is_no_model_is_told(place: str, reason: str) -> None:
    with pytest.raises(ZmqTritonError, match=reason), load_model(MODELS_DIRECTORY / place):
        pass
