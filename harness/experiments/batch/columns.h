// The columns that batch alone writes.
#pragma once

#include <string>

#include "harness/results/column.h"

namespace kv::experiments {

inline constexpr auto kLengths = results::TextColumn{"lengths", "", "batch: source of the lengths"}
                                     .axis("lengths {}", true)
                                     .swept_by("lengths");
inline constexpr results::NumberColumn kMaskedShare{
    "masked_share", "1",
    "batch, padded: share of the rows read that are padding, which the mask gives no weight; ratio_p50 is "
    "their cost"};
inline constexpr results::NumberColumn kWasteShare{"waste_share", "1",
                                                   "batch: slack / (payload + metadata + slack)"};
inline constexpr auto kBatchColumns = results::column_list(kLengths, kMaskedShare, kWasteShare);

}  // namespace kv::experiments
