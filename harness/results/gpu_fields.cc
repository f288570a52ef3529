#include "harness/results/gpu_fields.h"

namespace kv::results {

std::vector<Field<CellResult>> gpu_fields() {
  using C = CellResult;
  std::vector<Field<C>> fields = written_by<C>(
      "decode",
      {{"gpu_p50_us", "us", &C::gpu_p50_us,
        "attention on cold rows by the GPU's events around its launches, which the host gives before the "
        "first "
        "begins; with device = cuda, in place of cold_attend_p50_us"},
       {"gpu_ci_low_us", "us", &C::gpu_ci_low_us, "its 95 % interval"},
       {"gpu_ci_high_us", "us", &C::gpu_ci_high_us, "its upper end"},
       {"gpu_sm_mhz_least", "MHz", &C::gpu_sm_mhz_least,
        "the GPU's clock beside these times, by a kernel that counts it: of the slowest repetition"},
       {"gpu_sm_mhz_most", "MHz", &C::gpu_sm_mhz_most, "and of the fastest"}});
  fields.push_back(one_of<C>({"forward_device", "", &C::forward_device,
                              "where the model's forward pass ran; its caches' attention ran on `device`"},
                             {"cpu"}));
  fields.back().experiments = "quality recall generate stream model";
  return fields;
}

}  // namespace kv::results
