// The columns of claims.csv: everything that reports show, so that they need no claim file. Readers can
// check a figure again with `how` and `run`.
#pragma once

#include "harness/results/table.h"

namespace kv::claims {
inline constexpr results::TextColumn kSource{"source", "", "name of the claim file"};
inline constexpr results::TextColumn kClaim{"claim", "", "id of the claim in its file"};
inline constexpr results::TextColumn kFigure{
    "figure", "", "row of the table and name of the check; empty if the claim has one"};
inline constexpr results::TextColumn kKind{"kind", "", "of the source: document or paper"};
inline constexpr results::TextColumn kTableTitle{"table", "", "the source's table, if the figure is in one"};
inline constexpr results::TextColumn kTableRow{"row", "", "row of that table"};
inline constexpr results::TextColumn kTableColumn{"column", "", "column of that table"};
inline constexpr results::TextColumn kReading{"reading", "",
                                              "yes if the source leaves open whether it means this"};
inline constexpr results::TextColumn kRole{"role", "", "decides, control, scope, or sum of the source's own"};
inline constexpr results::TextColumn kDecides{
    "decides", "", "yes in one row of each published figure, which gives its verdict"};
inline constexpr results::TextColumn kCheck{"check", "", "kind of the check"};
inline constexpr results::TextColumn kReplica{"replica", "",
                                              "exact, or qualitative: other inputs or another size"};
inline constexpr results::TextColumn kMachine{"machine", "", "yes if the verdict depends on the machine"};
inline constexpr results::TextColumn kPublished{"published", "", "the source's figure"};
inline constexpr results::TextColumn kComputed{"computed", "", "computed value in the figure's unit"};
inline constexpr results::TextColumn kMeasured{"measured", "",
                                               "measured value in the figure's unit, and its interval"};
inline constexpr results::NumberColumn kComputedValue{"computed_value", "", "computed, in the base unit"};
inline constexpr results::NumberColumn kMeasuredValue{"measured_value", "", "measured, in the base unit"};
inline constexpr results::NumberColumn kIntervalLow{"interval_low", "", "lower end of its 95 % interval"};
inline constexpr results::NumberColumn kIntervalHigh{"interval_high", "", "upper end of its 95 % interval"};
inline constexpr results::TextColumn kVerdict{"verdict", "", "explained in configs/claims/README.md"};
inline constexpr results::TextColumn kReason{"reason", "", "reason of the verdict"};
inline constexpr results::TextColumn kNote{"note", "", "remark of the claim file"};
inline constexpr results::TextColumn kText{"text", "", "the claim in a sentence"};
inline constexpr results::TextColumn kTitle{"title", "", "title of the source"};
inline constexpr results::TextColumn kDocument{"document", "", "document of the source"};
inline constexpr results::TextColumn kWhere{"where", "", "place in the source"};
inline constexpr results::TextColumn kQuote{"quote", "", "words of the source"};
inline constexpr results::TextColumn kSetting{"setting", "", "the configuration that reproduces it"};
inline constexpr results::TextColumn kHow{"how", "", "expressions of the check, and their names"};
inline constexpr results::TextColumn kRun{"run", "", "sweep configs that they need, as TOML"};
inline constexpr auto kClaimColumns = results::column_list(
    kSource, kKind, kClaim, kFigure, kTableTitle, kTableRow, kTableColumn, kRole, kReading, kDecides, kCheck,
    kReplica, kMachine, kPublished, kComputed, kMeasured, kComputedValue, kMeasuredValue, kIntervalLow,
    kIntervalHigh, kVerdict, kReason, kNote, kText, kTitle, kDocument, kWhere, kQuote, kSetting, kHow, kRun);
inline const results::Table kClaimTable{"claims.csv", {kClaimColumns.begin(), kClaimColumns.end()}};

}  // namespace kv::claims
