"""Every seeded fault of the mutation study (tools/mutation_study.py) still finds its place."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from mutations import MUTATIONS  # noqa: E402


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.fault for mutation in MUTATIONS])
def test_finds_its_place(mutation):
    for edit in mutation.edits:
        text = (ROOT / edit.file).read_text()
        assert text.count(edit.find) == 1, f"{edit.file}: {edit.find}"
        assert edit.replace != edit.find
    for test in mutation.tests:
        folder = "python" if test.startswith("pytest:") else "unit"
        name = test.removeprefix("pytest:") if folder == "python" else f"{test}.cc"
        assert (ROOT / "tests" / folder / name).is_file(), test


def test_every_one_was_caught():
    """The report is of these faults, and none of them went unnoticed."""
    report = (ROOT / "docs" / "MUTATIONS.md").read_text()
    assert f"{len(MUTATIONS)} of {len(MUTATIONS)} are caught." in report
    for mutation in MUTATIONS:
        assert f"| {mutation.fault} | " in report
