// topk: the rows that attention weighs most, an oracle.
//
// It reads the `rows` kept rows with the largest attention weight, summed over the query heads that share the kv head,
// of equal ones the oldest. To know them it runs attention over every row first: it reads more than `all`, and is
// an upper bound on the quality of what reads as many rows, never a speed. Its time and its bytes read say so.
#include <algorithm>

#include "variants/list.h"
#include "variants/selection/largest.h"

namespace kv::selection {
namespace {

class TopK : public Selection {
 public:
  TopK(const Stage& stage, const SelectionContext& context) : rows_(stage.rows("rows", context.max_tokens)) {}
  std::unique_ptr<Selection> clone() const override { return std::make_unique<TopK>(*this); }
  std::vector<RowRange> choose(const SelectionInput& in) override {
    return largest(in.scores, in.order, std::min(rows_, in.rows), 1, in.rows);
  }

 private:
  int64_t rows_;
};

std::string topk_refuses(const Codec& codec, const RetentionEntry&) {
  if (codec.unit_rows() == 1) return "";
  return "reads single rows, and the codec encodes groups of " + std::to_string(codec.unit_rows()) +
         " rows together";
}

}  // namespace

const SelectionEntry topk{
    {.name = "topk",
     .help = "reads the rows of the largest attention weight",
     .source = "",
     .parameters = {Parameter::rows("rows", "256", {32}, "rows read of each head, after all were read once")},
     .oracle = "reads every row to choose"},
    {.make = make_selection<TopK>,
     .rows_read = [](const Stage& stage, int64_t rows,
                     int64_t max_tokens) { return std::min(rows, stage.rows("rows", max_tokens)); },
     .refuses = topk_refuses,
     .weighs = true}};

}  // namespace kv::selection
