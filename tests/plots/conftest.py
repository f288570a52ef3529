"""The modules of plots/ are imported as report.py imports them; reports that several files look at are drawn once."""

import shutil
import sys

import pytest
from support import PLOTS, specifications
from synthetic import CROSSING, LATER, SERVING, SWEPT, synthetic_run

sys.path.insert(0, str(PLOTS))


@pytest.fixture(autouse=True, scope="module")
def no_labels():
    """Those of the folders that another file has read."""
    from known import LABELS

    LABELS.clear()


@pytest.fixture(scope="session")
def browser():
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not found:
        pytest.skip("Chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=found)
        yield running
        running.close()


@pytest.fixture(scope="session")
def charts(tmp_path_factory):
    """Every chart by its name: the specification, and the files that it was drawn from."""
    from drawn import Files

    top = tmp_path_factory.mktemp("charts")
    folders = [
        synthetic_run(top / "swept", SWEPT, lengths=(256, 512), growth_to=64, growing=len(SWEPT)),
        synthetic_run(top / "tiers", lengths=(256,), also=("tiers", "peers")),
        synthetic_run(top / "replays", lengths=(256,), also=SERVING),
        synthetic_run(top / "beside", lengths=(256,), also=["beside"]),
        synthetic_run(top / "crossing", CROSSING, lengths=[256 << doubled for doubled in range(7)]),
        synthetic_run(top / "common", lengths=(256, 512, 1024), growth_to=300, also=LATER, one_thread=True),
    ]
    # A chart that several have is that of the last.
    return {name: (spec, Files(folder)) for folder in folders for name, spec in specifications(folder)[0].items()}
