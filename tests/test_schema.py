"""docs/result.schema.json is what results are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sample_run import KAFKA, LOG, workload, write_run
from streamgauge.model import schema

PUBLISHED = Path(__file__).parent.parent / "docs" / "result.schema.json"


def test_the_published_schema_is_current() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == schema.text(), (
        "run `python -m streamgauge.model.schema docs/result.schema.json`"
    )


def test_written_results_validate_and_foreign_keys_do_not(tmp_path: Path) -> None:
    from jsonschema import Draft202012Validator  # Late: a second of CPU, in every process of the suite.

    write_run(tmp_path, (LOG, KAFKA), workload(rate=500, seconds=4))
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(published)
    validator = Draft202012Validator(published)
    for path in sorted(tmp_path.glob("trials/*/result.json")):
        result = json.loads(path.read_text())
        validator.validate(result)
        result["surprise"] = 1
        assert not validator.is_valid(result)


def test_the_module_writes_the_file_or_says_why_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert schema.main([str(tmp_path / "schema.json")]) == 0
    assert (tmp_path / "schema.json").read_text() == schema.text()
    assert schema.main([str(tmp_path / "no" / "schema.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert schema.main(["a", "b"]) == 2
    assert schema.main([]) == 0
