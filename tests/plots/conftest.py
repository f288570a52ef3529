"""The modules of plots/ are imported as report.py imports them; reports that several files look at are drawn once."""

import sys

import pytest
from browser import chromium
from support import PLOTS, reported
from synthetic import CROSSING, SWEPT, synthetic_run

sys.path.insert(0, str(PLOTS))


@pytest.fixture(autouse=True, scope="module")
def no_labels():
    """Those of the folders that another file has read."""
    from known import LABELS

    LABELS.clear()


@pytest.fixture(scope="session")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def special_reports(tmp_path_factory):
    """Reports of the charts that a common run has no cells for: the folders."""
    top = tmp_path_factory.mktemp("special")
    folders = [
        synthetic_run(top / "swept", SWEPT, lengths=(256, 512), growth_to=64, growing=len(SWEPT)),
        synthetic_run(top / "tiers", lengths=(256,), tiers=True),
        synthetic_run(top / "replays", lengths=(256,), replays=True),
        synthetic_run(top / "beside", lengths=(256,), beside=True),
        synthetic_run(top / "crossing", CROSSING, lengths=[256 << doubled for doubled in range(7)]),
    ]
    for folder in folders:
        reported(folder)
    return folders
