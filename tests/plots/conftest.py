"""The modules of plots/ are imported as report.py imports them."""

import sys

from support import PLOTS

sys.path.insert(0, str(PLOTS))
