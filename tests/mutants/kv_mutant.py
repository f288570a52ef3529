"""Switches planted bugs by the environment, as kv_mutant.h does."""

import os

NOW, REACHED = int(os.environ.get("KVLAB_MUTANT", "0"), 16), os.environ.get("KVLAB_MUTANTS_REACHED")


def kv_mutant(bug: int) -> bool:
    if REACHED:
        open(f"{REACHED}/{bug:07x}", "w").close()
    return NOW == bug
