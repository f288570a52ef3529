"""The planted bugs of tests/mutants are in step with the code: a run of all of them takes too long to find that out."""

import sys
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(HOME / "tests" / "mutants"))
from list import MUTANTS  # noqa: E402


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.old.splitlines()[0].strip()}")
def test_a_planted_bug_has_its_place_and_its_tests(mutant):
    assert mutant.old != mutant.new
    assert (HOME / mutant.file).read_text().count(mutant.old) == 1
    for name in mutant.tests.split():
        assert list(HOME.glob(f"tests/**/{name}.cc")) + list(HOME.glob(f"tests/**/{name}.py")), name
