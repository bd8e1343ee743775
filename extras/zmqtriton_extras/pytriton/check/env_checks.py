"""The environment, written to a log that a user can send with a report."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
import shutil
import subprocess
import sys

_GPU_QUESTION_S = 30.0


def env_checks(logger: logging.Logger) -> None:
    """Log the platform, the distributions, the GPUs and the names of environment variables.

    Values of variables are not logged: they may be secrets.
    """
    logger.info("Platform: %s", platform.platform())
    logger.info("Python: %s at %s", sys.version, sys.executable)
    logger.info("CPUs: %s", os.cpu_count())
    for line in sorted(
        {f"{d.metadata['Name']}=={d.version}" for d in importlib.metadata.distributions()}
    ):
        logger.info("Distribution: %s", line)
    logger.info("Environment variables: %s", ", ".join(sorted(os.environ)))
    _log_gpus(logger)


def _log_gpus(logger: logging.Logger) -> None:
    program = shutil.which("nvidia-smi")
    if program is None:
        logger.info("GPUs: nvidia-smi is not installed")
        return
    try:
        answer = subprocess.run(
            [program, "--list-gpus"],
            capture_output=True,
            text=True,
            timeout=_GPU_QUESTION_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        logger.error("GPUs: nvidia-smi fails: %s", error)
        return
    logger.info("GPUs: %s", answer.stdout.strip() or "none")
