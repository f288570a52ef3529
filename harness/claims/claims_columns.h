// The columns of claims.csv: everything that reports show, so that they need no claim file. Readers can
// check a figure again with `how` and `run`.
#pragma once

#include "harness/results/table.h"

namespace kv::claims {

inline constexpr results::TextColumn kSource{"source", "", "the claim file's name"};
inline constexpr results::TextColumn kClaim{"claim", "", "its id in that file"};
inline constexpr results::TextColumn kFigure{"figure", "",
                                             "the table's row and figure; empty where the claim has one"};
inline constexpr results::TextColumn kCheck{"check", "", "how it is checked"};
inline constexpr results::TextColumn kReplica{
    "replica", "", "exact, or qualitative: other inputs or another size than the source's"};
inline constexpr results::TextColumn kMachine{"machine", "", "whether the verdict depends on the machine"};
inline constexpr results::TextColumn kPublished{"published", "", "the source's figure"};
inline constexpr results::TextColumn kComputed{"computed", "", "in the figure's unit"};
inline constexpr results::TextColumn kMeasured{"measured", "", "in the figure's unit, with its interval"};
inline constexpr results::NumberColumn kComputedValue{"computed_value", "", "in the base unit"};
inline constexpr results::NumberColumn kMeasuredValue{"measured_value", "", "in the base unit"};
inline constexpr results::NumberColumn kIntervalLow{"interval_low", "", "95 % interval of measured_value"};
inline constexpr results::NumberColumn kIntervalHigh{"interval_high", "", "its upper end"};
inline constexpr results::TextColumn kVerdict{"verdict", "", "configs/claims/README.md explains each"};
inline constexpr results::TextColumn kReason{"reason", "", "why it is the verdict"};
inline constexpr results::TextColumn kNote{"note", "", "the claim file's remark"};
inline constexpr results::TextColumn kText{"text", "", "the claim in a sentence"};
inline constexpr results::TextColumn kTitle{"title", "", "the source's title"};
inline constexpr results::TextColumn kDocument{"document", "", "the source's document"};
inline constexpr results::TextColumn kWhere{"where", "", "the place in it"};
inline constexpr results::TextColumn kQuote{"quote", "", "the source's own words"};
inline constexpr results::TextColumn kSetting{"setting", "", "the configuration that reproduces it"};
inline constexpr results::TextColumn kHow{"how", "", "the expressions, and the meaning of their names"};
inline constexpr results::TextColumn kRun{"run", "", "the sweep configs that they need, as TOML"};
inline constexpr auto kClaimColumns =
    results::column_list(kSource, kClaim, kFigure, kCheck, kReplica, kMachine, kPublished, kComputed,
                         kMeasured, kComputedValue, kMeasuredValue, kIntervalLow, kIntervalHigh, kVerdict,
                         kReason, kNote, kText, kTitle, kDocument, kWhere, kQuote, kSetting, kHow, kRun);
inline const results::Table kClaimTable{"claims.csv", {kClaimColumns.begin(), kClaimColumns.end()}};

}  // namespace kv::claims
