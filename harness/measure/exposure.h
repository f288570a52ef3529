// How much of a cache was put to the test: rows that its queries read encoded, and rows that they no longer read. A residual
// buffer, first rows, sinks, a window or a budget that is longer than the text hide what a codec or a policy does to a longer one.
#pragma once

#include <string>

#include "harness/results/cell_columns.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::measure {

inline constexpr results::NumberColumn kEncodedShare{
    "encoded_share", "1",
    "share of the rows that a full cache's query reads which was read as the codec stores them, not raw; the "
    "mean over the queries that were judged, layers and heads"};
inline constexpr results::NumberColumn kDroppedShare{
    "dropped_share", "1", "share of the same rows that was not read: gone, or not selected"};
inline constexpr auto kExposureColumns = results::column_list(kEncodedShare, kDroppedShare);

inline constexpr results::IntegerColumn kStatedContext{
    "stated_context", "tokens",
    "length that the verdict speaks of: untested, if rows are exposed less than there"};
inline constexpr results::NumberColumn kContextEncodedShare{"context_encoded_share", "1",
                                                            "encoded_share at stated_context"};
inline constexpr results::NumberColumn kContextDroppedShare{"context_dropped_share", "1",
                                                            "dropped_share at stated_context"};
inline constexpr auto kContextColumns =
    results::column_list(kStatedContext, kContextEncodedShare, kContextDroppedShare);

// Sets these columns. `shape` is that of the cache; the context is at least as long as the sequence.
void record_exposure(results::Row& row, const LayerSpecs& specs, const ModelShape& shape,
                     const Queries& queries, int64_t context);

// True if the row's cache exposed less than 0.9 of what it does at the stated context, by either share.
bool is_untested(const results::Row& row);
// "not put to the test at 128 tokens: 0 % of its tokens were encoded, at 2,048 tokens 74 %"; empty if it was.
std::string untested_text(const results::Row& row);

}  // namespace kv::measure
