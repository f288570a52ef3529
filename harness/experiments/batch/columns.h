// The columns that batch alone writes.
#pragma once

#include <string>

#include "harness/results/column.h"

namespace kv::experiments {

inline constexpr auto kLengths =
    results::TextColumn{"lengths", "", "batch: what the lengths were drawn from"}.axis("lengths {}", true).swept_by("lengths");
inline constexpr results::NumberColumn kMaskedShare{
    "masked_share", "1",
    "batch, padded: rows that attention reads and its mask gives no weight, of all it reads; "
    "ratio_p50 is what they cost"};
inline constexpr results::NumberColumn kWasteShare{"waste_share", "1",
                                                   "batch: slack / (payload + metadata + slack)"};
inline constexpr auto kBatchColumns = results::column_list(kLengths, kMaskedShare, kWasteShare);

}  // namespace kv::experiments
