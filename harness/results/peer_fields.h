// What decode says of other engines' attention.
#pragma once

#include <string>
#include <vector>

#include "harness/results/schema.h"

namespace kv::results {

struct CellResult;

struct PeerResult {
  std::string peer, peer_version, peer_settings;
  Number peer_tolerance;
  Integer peer_bytes_reported, peer_bytes_resident;
  // Against kvlab's own variant of the codec that the peer's file names.
  std::string peer_versus;
  Number peer_ratio_p50, peer_ratio_ci_low, peer_ratio_ci_high;
  Number peer_cold_ratio_p50, peer_cold_ratio_ci_low, peer_cold_ratio_ci_high;
};
std::vector<Field<CellResult>> peer_fields();

}  // namespace kv::results
