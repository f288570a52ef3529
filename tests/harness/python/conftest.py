"""Finds the package that the tested build made."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["KVLAB_PROGRAM"]).parents[1] / "python"))
