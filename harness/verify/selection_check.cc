#include "harness/verify/selection_check.h"

#include <algorithm>

#include "harness/verify/reference/hadamard.h"
#include "harness/verify/rows.h"
#include "harness/verify/verify.h"
#include "variants/cache/cache.h"
#include "variants/cache/compatibility.h"
#include "variants/cache/spec.h"

namespace kv::verify {
namespace {

reference::Parameters parameters_of(const Spec& spec, int64_t max_tokens) {
  reference::Parameters numbers;
  for (const Parameter& p : selection_of(spec).parameters) {
    const std::string name(p.name);
    numbers[name] = p.kind == Parameter::Kind::kDecimal ? spec.selection.hundredths(name)
                    : p.kind == Parameter::Kind::kRows  ? spec.selection.rows(name, max_tokens)
                                                        : spec.selection.integer(name);
  }
  return numbers;
}

}  // namespace

void SelectionCheck::add(Cache& cache, const Output& output, int kv_head) {
  const Spec& spec = cache.spec(output.layer);
  if (selection_of(spec).reads_all()) return;
  const int d = cache.shape().head_dim, group = cache.shape().group();
  const std::vector<float> keys = decoded_rows(cache, output.sequence, output.layer, kv_head).k;
  const float* first = output.q + int64_t{kv_head} * group * d;
  std::vector<float> q(first, first + int64_t{group} * d);
  const Codec codec = codec_of(spec).make(spec.codec);
  if (codec.k_rotation == Rotation::kRandom) reference::flip_signs(q, d);
  if (codec.k_rotation != Rotation::kNone) reference::hadamard(q, d);
  reference::SelectionHead head{.q = q, .k = keys, .head_dim = d, .rows = std::ssize(keys) / d, .terms = {}};
  for (int g = 0; g < group; ++g) {
    reference::SoftmaxTerms terms{.cap = static_cast<double>(output.score_cap)};
    if (output.sink_logits) terms.sink = static_cast<double>(output.sink_logits[kv_head * group + g]);
    head.terms.push_back(terms);
  }
  const auto candidates =
      reference::candidates_of(spec.selection.name, parameters_of(spec, cache.shape().max_tokens), head);
  SelectionCheck one{.oracle = candidates ? "fp64" : "no_oracle",
                     .bound = near_tie(kernel_error_bound(spec))};
  if (candidates) {
    const auto miss =
        reference::miss_of(*candidates, cache.read_slots(output.sequence, output.layer, kv_head), head.rows);
    one.choices = miss.choices;
    one.disputed = miss.disputed;
    one.worst_miss = miss.worst;
  }
  add(one);
}

void SelectionCheck::add(const SelectionCheck& other) {
  if (oracle.empty() || other.oracle == "no_oracle") oracle = other.oracle;
  choices += other.choices;
  disputed += other.disputed;
  // NaN stays: std::max would lose it.
  if (!(other.worst_miss <= worst_miss)) worst_miss = other.worst_miss;
  bound = std::max(bound, other.bound);
}

std::string SelectionCheck::failure() const {
  if (worst_miss <= bound) return "";
  return "the rows that were read are not the FP64 selection's: the least score among them misses the best "
         "of the "
         "others by " +
         in_short(worst_miss) + " (bound " + in_short(bound) + ")";
}

}  // namespace kv::verify
