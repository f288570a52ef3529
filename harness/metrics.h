// The table of error metrics: every error column of a result and every axis of a chart comes from here.
#pragma once

#include <span>
#include <string_view>

namespace kv {

struct Metric {
  std::string_view name;  // the CSV column
  std::string_view unit;
  std::string_view better;  // "lower" or "higher"
  std::string_view help;
  double (*compute)(std::span<const double> got, std::span<const double> want);
};

// err_max_abs, err_rel_l2, err_cosine (cosine similarity; 1 is best), err_attn_kl (KL(want || got), nats, of
// distributions).
std::span<const Metric> metrics();

}  // namespace kv
