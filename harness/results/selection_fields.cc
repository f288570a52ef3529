#include "harness/results/selection_fields.h"

namespace kv::results {

std::vector<Field<CellResult>> selection_fields(std::string_view all, std::string_view outputs,
                                                std::string_view judged) {
  using Row = CellResult;
  const auto by = [](std::string_view experiments, Field<Row> field) {
    field.experiments = experiments;
    return field;
  };
  return {
      by(all, {"bytes_read", "bytes", &Row::bytes_read,
               "K, V, scales and zero points that one step's attention reads, and what a selection reads to "
               "choose; "
               "what is held is payload + metadata"}),
      by(outputs, {"err_selection_rel_l2", "1", &Row::err_selection_rel_l2,
                   "selections: FP64 on the rows that were read against FP64 on those that are kept"}),
      by(judged,
         one_of<Row>(
             {"selection_check", "", &Row::selection_check,
              "fp64: the rows that were read were compared with those of the FP64 selection; no_oracle: it "
              "has none; empty: all rows are read"},
             {"fp64", "no_oracle"})),
      by(judged, {"selection_choices", "", &Row::selection_choices,
                  "rows or pages read that were compared with the FP64 selection's"}),
      by(judged, {"selection_disputed", "", &Row::selection_disputed,
                  "of these, near ties that f32 decided otherwise"}),
  };
}

}  // namespace kv::results
