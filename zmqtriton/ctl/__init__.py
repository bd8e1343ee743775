"""The name for imports of further commands of `zmqtriton-ctl`, whose own code is an add-on."""

from zmqtriton_standard.ctl.asking import run_with_client
