#include "harness/measure/exposure.h"

#include <algorithm>
#include <cmath>

#include "harness/io/bytes.h"

namespace kv::measure {
namespace {

constexpr double kEnough = 0.9;  // of the context's share

bool is_short(const results::Number& share, const results::Number& context) {
  return share && context && *share < kEnough * *context;
}

std::string share_text(double share) { return std::to_string(std::lround(100 * share)) + " %"; }

}  // namespace

void record_exposure(results::Row& row, const LayerSpecs& specs, const ModelShape& shape,
                     const Queries& queries, int64_t context) {
  const Queries stated = queries.in(context);
  ModelShape longer = shape;
  longer.max_tokens = std::max(shape.max_tokens, stated.length);
  const RowShares here = row_shares(specs, shape, queries), there = row_shares(specs, longer, stated);
  row[kEncodedShare] = here.encoded;
  row[kDroppedShare] = here.dropped;
  row[kStatedContext] = stated.length;
  row[kContextEncodedShare] = there.encoded;
  row[kContextDroppedShare] = there.dropped;
}

bool is_untested(const results::Row& row) {
  return is_short(row[kEncodedShare], row[kContextEncodedShare]) ||
         is_short(row[kDroppedShare], row[kContextDroppedShare]);
}

std::string untested_text(const results::Row& row) {
  if (!is_untested(row)) return "";
  const bool encoded = is_short(row[kEncodedShare], row[kContextEncodedShare]);
  const double here = encoded ? *row[kEncodedShare] : *row[kDroppedShare],
               there = encoded ? *row[kContextEncodedShare] : *row[kContextDroppedShare];
  return "not put to the test at " + io::grouped(*row[results::kSeqLen]) + " tokens: " + share_text(here) +
         " of its tokens were " + (encoded ? "encoded" : "dropped or not read") + ", at " +
         io::grouped(*row[kStatedContext]) + " tokens " + share_text(there);
}

}  // namespace kv::measure
