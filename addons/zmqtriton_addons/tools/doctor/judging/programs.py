"""Pythons, libraries and installations."""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton.findings import Finding, error, note, warning
from zmqtriton_addons.tools.doctor.facts import Facts


def judge_interpreter(facts: Facts) -> Iterator[Finding]:
    python = facts.interpreter
    if python.is_debug_build:
        yield warning(
            f"{python.path} is a debug build, which is several times slower",
            "Install the server into a usual Python.",
            "uv venv --python 3.12 /opt/zmqtriton",
        )
    elif not python.is_optimized:
        yield note(
            f"{python.path} was built without --enable-optimizations (PGO), so it is slower",
            "Python of a distribution, of conda or of uv has it; of pyenv only with "
            "PYTHON_CONFIGURE_OPTS='--enable-optimizations --with-lto'.",
            "uv venv --python 3.12 /opt/zmqtriton",
        )
    if python.encoding.replace("-", "").lower() != "utf8":
        yield warning(
            f"texts are encoded as {python.encoding} here, not as UTF-8",
            "Models that read or print other letters than those of English may fail.",
            "export LC_ALL=C.UTF-8",
        )


def judge_packages(facts: Facts) -> Iterator[Finding]:
    wrong = [package for package in facts.packages if not package.is_accepted]
    for package in wrong:
        found = f"is {package.version}" if package.version else "is missing"
        yield error(
            f"the library {package.name} {found}; zmqtriton needs {package.requirement}",
            "Something else has changed the environment. Install the server into one of its own.",
            f"{facts.interpreter.path} -m pip install '{package.requirement}'",
        )


def judge_installations(facts: Facts) -> Iterator[Finding]:
    mine, server = facts.installation, facts.server
    if server is not None and server.version != mine.version:
        yield warning(
            f"the server is zmqtriton {server.version}, and this program is {mine.version}",
            "Use the zmqtriton-ctl of the server's installation.",
            f"ls -l /proc/{server.pid}/exe",
        )
    if mine.recorded_version != mine.version:
        yield warning(
            f"the code is zmqtriton {mine.version}, and its package says "
            f"{mine.recorded_version or 'nothing'}",
            "Files of two versions are mixed. Install it again.",
            f"{facts.interpreter.path} -m pip install --force-reinstall zmqtriton",
        )
    if mine.other_programs:
        others = ", ".join(mine.other_programs)
        yield note(
            f"PATH has another installation: {others}",
            "`zmqtriton` may start that one. Name the program by its whole path.",
            "type -a zmqtriton",
        )


def judge_model_pythons(facts: Facts) -> Iterator[Finding]:
    for each in facts.model_pythons:
        if each.problem:
            yield error(
                f"model {each.model} has no usable Python: {each.problem}",
                "Correct the model's parameters, or install what they name.",
                f"zmqtriton-ctl env prepare {each.model}",
            )
    building = [each.model for each in facts.model_pythons if each.requirements]
    if building and not facts.has_uv:
        yield error(
            f"uv is missing, which builds the environments of {', '.join(building)}",
            "Install it beside the server.",
            f"{facts.interpreter.path} -m pip install uv",
        )


def judge_gpu(facts: Facts) -> Iterator[Finding]:
    gpu = facts.gpu
    if gpu.has_devices and gpu.nvml_problem:
        yield warning(
            f"there is an NVIDIA GPU, and its driver does not answer: {gpu.nvml_problem}",
            "Models of KIND_GPU are refused. Driver and library may be of two versions until the "
            "next start of the machine; in a container, use --gpus all.",
            "nvidia-smi",
        )
    for path in gpu.forbidden_devices:
        yield warning(
            f"this user may not open {path}",
            "Add the users of the server and its models to the groups video and render.",
            f"ls -l {path}",
        )
    if gpu.count and not gpu.cupy:
        yield note(
            "there is a GPU, and cupy is missing",
            "It is needed where tensors stay on the GPU between models or come from clients there.",
            f"{facts.interpreter.path} -m pip install 'zmqtriton[gpu]'",
        )
    if gpu.cupy and not gpu.has_devices:
        yield note(
            f"cupy {gpu.cupy} is installed, and no GPU can be seen",
            "In a container, use --gpus all. Without a GPU it is not needed.",
            "nvidia-smi",
        )
