#include "harness/results/tier_fields.h"

namespace kv::results {

std::vector<Field<CellResult>> tier_fields(std::string_view all, std::string_view steps) {
  using Row = CellResult;
  const auto by = [](std::string_view experiments, Field<Row> field) {
    field.experiments = experiments;
    return field;
  };
  return written_by<Row>(
      "decode",
      {
          by(all, {"bytes_hot", "bytes", &Row::bytes_hot,
                   "tiers: payload, metadata and slack in the memory that rows are stored in first"}),
          by(all, {"bytes_warm", "bytes", &Row::bytes_warm,
                   "tiers: in the second pool of memory; those in files are bytes_disk"}),
          by(steps,
             {"read_hot_bytes", "bytes", &Row::read_hot_bytes, "tiers: that one step reads of the hot rows"}),
          by(steps, {"read_warm_bytes", "bytes", &Row::read_warm_bytes, "tiers: of the warm rows"}),
          by(steps, {"read_disk_bytes", "bytes", &Row::read_disk_bytes,
                     "tiers: of files, as the ledger has counted the requests; whole chunks"}),
          {"hot_read_gbps", "GB/s", &Row::hot_read_gbps, "tiers: attention over the hot rows alone"},
          {"hot_ceiling_gbps", "GB/s", &Row::hot_ceiling_gbps, "tiers: reading these rows and nothing else"},
          {"hot_ceiling_share", "1", &Row::hot_ceiling_share, "hot_read_gbps / hot_ceiling_gbps"},
          {"warm_read_gbps", "GB/s", &Row::warm_read_gbps, "tiers: attention over the warm rows alone"},
          {"warm_ceiling_gbps", "GB/s", &Row::warm_ceiling_gbps,
           "tiers: reading these rows and nothing else"},
          {"warm_ceiling_share", "1", &Row::warm_ceiling_share, "warm_read_gbps / warm_ceiling_gbps"},
          {"disk_read_gbps", "GB/s", &Row::disk_read_gbps,
           "tiers: bytes read from files in the timed steps / the time in which any request was in flight"},
          {"disk_ceiling_gbps", "GB/s", &Row::disk_ceiling_gbps,
           "tiers: a file of the same folder and io, read from begin to end by requests of the same size, as "
           "many in flight"},
          {"disk_ceiling_share", "1", &Row::disk_ceiling_share, "disk_read_gbps / disk_ceiling_gbps"},
          {"disk_device_share", "1", &Row::disk_device_share,
           "tiers: of the bytes read from files in the timed steps, what a device delivered; the rest came "
           "from "
           "the page cache"},
          {"disk_hidden_share", "1", &Row::disk_hidden_share,
           "tiers: of the time in which requests of files were in flight, what attention did not wait for, "
           "since it "
           "was working on rows that had come or are in memory"},
          one_of<Row>({"simulated", "", &Row::simulated,
                       "tiers: link: reading files was slowed to link_gbps, so times are not this machine's"},
                      {"link"}),
          one_of<Row>(
              {"tier_bound", "", &Row::tier_bound,
               "tiers: which takes longest: memory (hot and warm bytes at their ceilings, one after the "
               "other), disk, or compute"},
              {"memory", "disk", "compute"}),
          {"tier_bound_us", "us", &Row::tier_bound_us,
           "that time: a step that overlaps all three takes as long"},
          {"tier_bound_share", "1", &Row::tier_bound_share, "tier_bound_us / attend_p50_us"},
      });
}

}  // namespace kv::results
