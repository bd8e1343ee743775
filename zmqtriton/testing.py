"""Tests of models, whose code is an add-on; these are the names that tests import."""

from zmqtriton_standard.tools.testing import *
