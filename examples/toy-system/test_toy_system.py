"""Toy passes the suite that every system of streamgauge passes: `pytest`, once the package is installed (`pip install -e .`)."""

from streamgauge.conformance.suite import Conformance


class TestToy(Conformance):
    system_name = "toy"
