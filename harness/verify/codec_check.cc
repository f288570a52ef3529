#include "harness/verify/codec_check.h"

#include <vector>

#include "harness/math/random.h"
#include "harness/verify/rows.h"
#include "harness/verify/verify.h"

namespace kv::verify {
namespace {

constexpr int64_t kRows = 256;  // at least; the intervals cover the scatter of so few rows

std::string side_failure(const char* side, const Encoding& encoding, const Interval& stated, int head_dim) {
  const int64_t units = (kRows + encoding.group - 1) / encoding.group;
  std::vector<float> rows(static_cast<size_t>(units * encoding.group * head_dim));
  math::random::fill_normal(math::random::key({uint64_t{encoding.group}}), rows);
  const std::vector<float> back = through_codec(encoding, head_dim, rows);
  const double error = relative_l2(std::vector<double>(back.begin(), back.end()),
                                   std::vector<double>(rows.begin(), rows.end()));
  if (stated.low <= error && error <= stated.high) return "";  // NaN fails
  return std::string("the codec's error of ") + side + " is " + in_short(error) +
         " over N(0,1), and it states " + in_short(stated.low) + " to " + in_short(stated.high);
}

}  // namespace

std::string codec_failure(const Codec& codec, int head_dim) {
  if (head_dim < 32 || head_dim > 512) return "";
  const std::string of_k = side_failure("K", codec.k, codec.k_error, head_dim);
  return of_k.empty() ? side_failure("V", codec.v, codec.v_error, head_dim) : of_k;
}

}  // namespace kv::verify
