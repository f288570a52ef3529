#include "harness/results/peer_fields.h"

#include "harness/results/cell_result.h"

namespace kv::results {

std::vector<Field<CellResult>> peer_fields() {
  using C = CellResult;
  return written_by<C>(
      "decode",
      {
          {"peer", "", &C::peer, "the engine, where a cell is another engine's; variant then has its format"},
          {"peer_version", "", &C::peer_version, "of the engine"},
          {"peer_settings", "", &C::peer_settings, "how the engine was used"},
          {"peer_tolerance", "1", &C::peer_tolerance,
           "err_kernel_rel_l2 above which the cell has failed, as the peer's file states it"},
          {"peer_bytes_reported", "bytes", &C::peer_bytes_reported, "the engine's cache, as it says itself"},
          {"peer_bytes_resident", "bytes", &C::peer_bytes_resident,
           "resident memory that its process gained while the cache was made and filled"},
          {"peer_versus", "", &C::peer_versus, "kvlab's variant of the same bits, whose times are 1 here"},
          {"peer_ratio_p50", "1", &C::peer_ratio_p50, "step_p50_us / that of peer_versus"},
          {"peer_ratio_ci_low", "1", &C::peer_ratio_ci_low,
           "its 95 % interval (Student's, over repetitions)"},
          {"peer_ratio_ci_high", "1", &C::peer_ratio_ci_high, "its upper end"},
          {"peer_cold_ratio_p50", "1", &C::peer_cold_ratio_p50, "cold_attend_p50_us / that of peer_versus"},
          {"peer_cold_ratio_ci_low", "1", &C::peer_cold_ratio_ci_low, "its 95 % interval"},
          {"peer_cold_ratio_ci_high", "1", &C::peer_cold_ratio_ci_high, "its upper end"},
      });
}

}  // namespace kv::results
