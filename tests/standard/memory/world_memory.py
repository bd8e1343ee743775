"""The memory of models in a world without processes, as a test says."""

from __future__ import annotations

from tests.supervisor.world import SupervisorHarness
from zmqtriton_standard.memory.measurements import HOST, MemoryQuestion, MemoryReport, Sizes


class WorldMemory:
    """Answers questions about memory in place of the thread."""

    def __init__(self, world: SupervisorHarness) -> None:
        #: By model; on GPUs by number, too.
        self.by_model: dict[str, int] = {}
        self.on_gpus: dict[str, dict[int, int]] = {}
        self.available_bytes = 1 << 40
        self.gpu_problem = ""
        self.of_forks: dict[str, int] = {}
        self.questions: list[MemoryQuestion] = []
        world.answer_in_background = self._answer

    def _answer(self, question: MemoryQuestion) -> MemoryReport:
        self.questions.append(question)
        sums = {name: self._sizes(name, question) for name in question.model_by_pid.values()}
        return MemoryReport(sums, self.available_bytes, self.gpu_problem, self.of_forks)

    def _sizes(self, name: str, question: MemoryQuestion) -> Sizes:
        on_gpus = self.on_gpus.get(name, {})
        sizes = {gpu: size for gpu, size in on_gpus.items() if gpu in question.models_by_gpu}
        return Sizes({HOST: self.by_model.get(name, 0), **sizes})
