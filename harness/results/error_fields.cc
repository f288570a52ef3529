#include "harness/results/error_fields.h"

#include <utility>

#include "harness/verify/metrics/metrics.h"

namespace kv::results {

std::vector<Field<CellResult>> error_fields(std::string_view outputs) {
  using C = CellResult;
  std::vector<Field<C>> fields;
  for (const verify::Metric* metric : verify::metrics()) {
    const ListedNumber<C> member{&C::metrics, fields.size()};
    fields.push_back({metric->name, metric->unit, member, metric->help});
  }
  const std::vector<Field<C>> interval =
      written_by<C>("budget", {{"err_ci_low", "1", &C::err_ci_low,
                                "95 % interval of err_rel_l2 (Student's, over the sequences of a batch of 5 "
                                "and more; empty where all "
                                "sequences are the same)"},
                               {"err_ci_high", "1", &C::err_ci_high, "its upper end"}});
  fields.insert(fields.end(), interval.begin(), interval.end());
  fields.push_back({"err_codec_rel_l2", "1", &C::err_codec_rel_l2,
                    "FP64 on the stored rows against FP64 on the same tokens as they came"});
  fields.push_back(
      {"err_retention_rel_l2", "1", &C::err_retention_rel_l2, "FP64 on the kept tokens against FP64 on all"});
  fields.push_back({"err_kernel_rel_l2", "1", &C::err_kernel_rel_l2,
                    "the cache's output against FP64 on the stored rows; above 1e-5 (f32, f16, bf16, fp8) "
                    "or 2e-3 (integer codes; 0.2 with arithmetic=int8) the cell has failed"});
  fields.push_back({"err_heads", "", &C::err_heads,
                    "query heads that were compared with FP64, of all sequences and layers"});
  fields.push_back(
      {"err_sample", "", &C::err_sample,
       "which, in the first layer, where not all; empty: all. Beyond 131072 tokens fewer, of few kv heads"});
  return written_by(outputs, std::move(fields));
}

}  // namespace kv::results
