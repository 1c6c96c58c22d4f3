"""The suite that every system passes: `suite.Conformance` (docs/adding-a-system.md). Needs pytest (the extra `conformance`)."""

import pytest

pytest.register_assert_rewrite("streamgauge.conformance.suite")
