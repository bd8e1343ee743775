"""Commands of `zmqtriton-ctl`, which is an add-on; this is the name that further ones import."""

from zmqtriton_standard.ctl.asking import run_with_client
