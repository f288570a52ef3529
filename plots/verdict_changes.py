"""Verdicts that a changed rule or claim file gives another name than the committed run has.

For `claims.py COMMITTED FRESH`. Once ./kvlab reproduce is run again and committed, none of these occurs: empty the table.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple


class Change(NamedTuple):
    figure: str  # source/claim/figure, with * for any text
    before: str
    after: str
    why: str


BOUND = "a bound is no prediction: what is published below it is consistent with it"
REPLICA = "other inputs, or another size, than the source's contradict nothing"
NOISE = "it was measured, and the interval leaves it open"
CONSTRUCTION = "the claim file says why it could not have come out otherwise"
DIGIT = "half a unit of the last digit is more than the 10 % behind a ~"
THOUSAND_MIB = "4800 MiB are printed as 4.8 GB"
NO_GAIN = "half and double of a ratio had room for no gain at all"
IN_FP16 = "the range names no precision: it is right in FP16"
SSD = "an SSD lies below the RAM"
NO_SINKS = "data without sinks have nothing to recover"
REPRODUCED, CONTRADICTED, NOT_TESTABLE = "reproduced", "contradicted", "not testable here"
CONSISTENT, DIFFERS, BY_CONSTRUCTION = "consistent", "differs in this replica", "true by construction"

CHANGES = [
    Change("004-long-context/rates/*", REPRODUCED, CONSISTENT, BOUND),
    Change("004-long-context/rates/*", CONTRADICTED, CONSISTENT, BOUND),
    Change("004-long-context/rates-window/*", REPRODUCED, CONSISTENT, BOUND),
    Change("004-long-context/done-rates/200K in VRAM", REPRODUCED, CONSISTENT, BOUND),
    Change("004-long-context/test-plan/LongContext_200K_NoOOM", REPRODUCED, CONSISTENT, BOUND),
    Change("kivi/bytes/cache alone", REPRODUCED, CONSISTENT, BOUND),
    Change("kivi/bytes/larger batch from the cache alone", REPRODUCED, CONSISTENT, BOUND),
    Change("000-design-answer/paged-saving/*", CONTRADICTED, DIFFERS, REPLICA),
    Change("003-tract-in-place/int4-axis/K with outlier channels, ratio", CONTRADICTED, DIFFERS, REPLICA),
    Change("003-tract-in-place/int8/kvlab-recall-1m", CONTRADICTED, DIFFERS, REPLICA),
    Change("hf-quantised-cache/saving/*", CONTRADICTED, DIFFERS, REPLICA),
    Change("vllm/waste/*, reserving the longest length", CONTRADICTED, DIFFERS, REPLICA),
    Change("004-long-context/eviction", NOT_TESTABLE, "inconclusive", NOISE),
    Change("h2o/heavy-hitters/attention falls with distance (workload local)", NOT_TESTABLE, "inconclusive", NOISE),
    Change("000-design-answer/integers/INT8, K per channel (KIVI)", CONTRADICTED, REPRODUCED, DIGIT),
    Change("000-design-answer/integers/INT4, a scale a token and head", CONTRADICTED, REPRODUCED, DIGIT),
    Change("000-design-answer/integers/INT4, blocks of 32 (q4_0)", CONTRADICTED, REPRODUCED, DIGIT),
    Change("004-long-context/fp16/decimal digits", CONTRADICTED, REPRODUCED, DIGIT),
    Change("004-long-context/memory-fp32/200K, *", CONTRADICTED, REPRODUCED, THOUSAND_MIB),
    Change("004-long-context/memory-optimised/200K, *", CONTRADICTED, REPRODUCED, THOUSAND_MIB),
    Change("003-tract-in-place/int4-axis/K without, ratio", REPRODUCED, DIFFERS, NO_GAIN),
    Change("003-tract-in-place/int4-axis/kvlab-recall-1m, ratio", REPRODUCED, DIFFERS, NO_GAIN),
    Change("001-numpy-readme/22-gb/long contexts, 131,072 tokens", CONTRADICTED, REPRODUCED, IN_FP16),
    Change("004-long-context/memory-offload-ram", CONTRADICTED, BY_CONSTRUCTION, SSD),
    Change("streaming-llm/sinks/no token does (workload gaussian)", REPRODUCED, DIFFERS, NO_SINKS),
    Change("000-design-answer/padding/*", REPRODUCED, BY_CONSTRUCTION, CONSTRUCTION),
    Change("001-numpy-readme/on-demand/less *", REPRODUCED, BY_CONSTRUCTION, CONSTRUCTION),
    Change("001-numpy-readme/precision/FP32, *", REPRODUCED, BY_CONSTRUCTION, CONSTRUCTION),
    Change("001-numpy-readme/precision-quality/FP32", REPRODUCED, BY_CONSTRUCTION, CONSTRUCTION),
    Change("001-numpy-readme/step-work/*, pairs of positions", REPRODUCED, BY_CONSTRUCTION, CONSTRUCTION),
    Change("002-kv-cache-note/computation/K and V projections, *", REPRODUCED, BY_CONSTRUCTION, CONSTRUCTION),
    Change("003-tract-in-place/bits/*, codes alone", REPRODUCED, BY_CONSTRUCTION, CONSTRUCTION),
    Change("004-long-context/any-gpu", REPRODUCED, BY_CONSTRUCTION, CONSTRUCTION),
    Change("004-long-context/deltanet/against the context", REPRODUCED, BY_CONSTRUCTION, CONSTRUCTION),
    Change("004-long-context/rates/2K FP32 *", REPRODUCED, BY_CONSTRUCTION, CONSTRUCTION),
    Change("004-long-context/scales-with-context", REPRODUCED, BY_CONSTRUCTION, CONSTRUCTION),
    Change("vllm/waste/*, blocks of 16 tokens", REPRODUCED, BY_CONSTRUCTION, CONSTRUCTION),
]


def why_changed(figure: str, before: str, after: str) -> str:
    """Empty where no change explains it."""
    for change in CHANGES:
        if (before, after) == (change.before, change.after) and fnmatchcase(figure, change.figure):
            return change.why
    return ""
