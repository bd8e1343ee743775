"""The bindings, as programs import them."""

from tritonserver._c.triton_bindings import *
