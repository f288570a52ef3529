#include "harness/verify/policy_check.h"

#include <algorithm>

#include "harness/memory/ledger.h"
#include "harness/memory/run_context.h"
#include "harness/verify/reference/hadamard.h"
#include "harness/verify/rows.h"
#include "harness/verify/verify.h"
#include "variants/cache/compatibility.h"

namespace kv::verify {
namespace {

constexpr int kCheckedKvHeads = 2;

// Tokens [0, n) of the first kv heads of layer 0, and of the query heads that read them.
struct Heads {
  CacheShape shape;
  int64_t n;
  std::vector<float> q, k, v;
};

Heads heads_of(const workload::Workload& workload, int64_t n, int64_t max_tokens) {
  const workload::WorkloadShape& w = workload.shape();
  const int kv_heads = std::min(w.kv_heads, kCheckedKvHeads), group = w.q_heads / w.kv_heads;
  Heads heads{{.layers = 1,
               .q_heads = kv_heads * group,
               .kv_heads = kv_heads,
               .head_dim = w.head_dim,
               .max_tokens = max_tokens,
               .rope = w.rope},
              n,
              {},
              {},
              {}};
  heads.q.resize(static_cast<size_t>(w.q_heads * n * w.head_dim));
  heads.k.resize(static_cast<size_t>(w.kv_heads * n * w.head_dim));
  heads.v.resize(heads.k.size());
  workload.read(0, 0, 0, n, heads.q.data(), heads.k.data(), heads.v.data());
  heads.q.resize(static_cast<size_t>(kv_heads * group * n * w.head_dim));
  heads.k.resize(static_cast<size_t>(kv_heads * n * w.head_dim));
  heads.v.resize(heads.k.size());
  return heads;
}

// Rows [heads, count, head_dim] of rows [heads, n, head_dim].
std::vector<float> slice(const std::vector<float>& from, const Heads& heads, int count_heads, int64_t first,
                         int64_t count) {
  const int64_t d = heads.shape.head_dim;
  std::vector<float> to(static_cast<size_t>(count_heads * count * d));
  for (int h = 0; h < count_heads; ++h)
    std::copy_n(from.data() + (h * heads.n + first) * d, count * d, to.data() + h * count * d);
  return to;
}

struct Observed {
  std::vector<float> out;  // [q_heads, n, head_dim]
  reference::KeptTokens kept;
};

// The cache's outputs, and the tokens it keeps after the prompt and after each later token.
Observed observe(const Spec& spec, const Heads& heads, int64_t prompt, cuda::Gpu* gpu) {
  const CacheShape& shape = heads.shape;
  // Each step is too small to share among threads: on a busy machine, threads that wait for one another at each step
  // would take ten times as long.
  const memory::ThreadCount one_thread(1);
  memory::Ledger ledger(INT64_MAX, gpu);
  const auto cache = build_cache(spec, shape, ledger);
  const SequenceId id = cache->add_sequence();
  Observed seen{std::vector<float>(heads.q.size()),
                reference::KeptTokens(static_cast<size_t>(shape.kv_heads))};
  for (auto& kept : seen.kept) kept.resize(static_cast<size_t>(heads.n));
  for (int64_t first = 0; first < heads.n;) {
    const int64_t n = first == 0 ? std::max<int64_t>(1, prompt) : 1;
    const std::vector<float> q = slice(heads.q, heads, shape.q_heads, first, n);
    const std::vector<float> k = slice(heads.k, heads, shape.kv_heads, first, n);
    const std::vector<float> v = slice(heads.v, heads, shape.kv_heads, first, n);
    std::vector<float> out(q.size());
    const StepInput in{
        .sequence = id, .n = n, .q = q.data(), .k = k.data(), .v = v.data(), .out = out.data()};
    cache->step(0, {&in, 1});
    for (int h = 0; h < shape.q_heads; ++h) {
      std::copy_n(out.begin() + h * n * shape.head_dim, n * shape.head_dim,
                  seen.out.begin() + (h * heads.n + first) * shape.head_dim);
    }
    first += n;
    for (int h = 0; h < shape.kv_heads; ++h)
      seen.kept[static_cast<size_t>(h)][static_cast<size_t>(first - 1)] = cache->kept(id, 0, h);
  }
  return seen;
}

int64_t place_of(std::string_view choice, const std::vector<std::string_view>& choices) {
  return std::find(choices.begin(), choices.end(), choice) - choices.begin();
}

// Restricts the spec to the first KV heads, and the heads that it names by number to those.
Spec of_first_heads(Spec spec, int kv_heads) {
  for (const Parameter& parameter : retention_of(spec).parameters) {
    std::string& value = spec.retention.values.at(std::string(parameter.name));
    if (parameter.kind != Parameter::Kind::kHeads || value.find('.') != std::string::npos) continue;
    std::string named;
    for (int head = 0; head < kv_heads; ++head) {
      if (("+" + value + "+").find("+" + std::to_string(head) + "+") != std::string::npos)
        named += (named.empty() ? "" : "+") + std::to_string(head);
    }
    value = named.empty() ? "0.01" : named;  // a share that selects none of so few heads
  }
  return spec;
}

// At most `most` tokens, as many as kPolicyCheckWork allows. Each token attends to itself and to the kept earlier
// tokens.
int64_t affordable_tokens(const Spec& spec, const workload::WorkloadShape& w, int64_t max_tokens,
                          int64_t prompt) {
  const int heads = std::min(w.kv_heads, kCheckedKvHeads) * (w.q_heads / w.kv_heads);
  const RetentionEntry& retention = retention_of(spec);
  double work = 0.0;
  int64_t n = 0;  // every head counts as the one with the most rows
  while (n < max_tokens && work < kPolicyCheckWork) {
    ++n;
    // A prompt that is cut is attended to in full until it ends.
    const int64_t rows =
        n < prompt ? n : retention.slots(spec.retention, {max_tokens, n, std::min(n, prompt)});
    work += 2.0 * heads * w.head_dim * static_cast<double>(rows);
  }
  return n;
}

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

reference::Policy policy_of(const Spec& spec, int64_t max_tokens, int kv_heads) {
  const Stage& stage = spec.retention;
  const RowUnits units = codec_of(spec).make(spec.codec).units();
  reference::Policy policy{.name = stage.name, .groups = {units.rows, units.first, units.waiting}};
  for (const Parameter& parameter : retention_of(spec).parameters) {
    const std::string name(parameter.name);
    if (name == "positions") {
      policy.cache_positions = stage.text(name) == "cache";
    } else if (parameter.kind == Parameter::Kind::kRows) {
      policy.parameters[name] = stage.rows(name, max_tokens);
    } else if (parameter.kind == Parameter::Kind::kInteger) {
      policy.parameters[name] = stage.integer(name);
    } else if (parameter.kind == Parameter::Kind::kHeads) {
      for (int head = 0; head < kv_heads; ++head)
        policy.parameters[name + std::to_string(head)] = stage.names_head(name, head, kv_heads);
    } else if (parameter.kind == Parameter::Kind::kDecimal) {
      policy.parameters[name] = stage.hundredths(name);
    } else {
      policy.parameters[name] = place_of(stage.text(name), parameter.choices);
    }
  }
  return policy;
}

PolicyCheck check_policy(const Spec& spec, const workload::Workload& workload, int64_t max_tokens,
                         int64_t prompt, cuda::Gpu* gpu) {
  if (retention_of(spec).keeps_all) return {};
  if (!reference::find_oracle(spec.retention.name)) return {.oracle = "no_policy"};
  const int kv_heads = std::min(workload.shape().kv_heads, kCheckedKvHeads);
  const Spec checked = of_first_heads(spec, kv_heads);
  return check_policy(checked, policy_of(checked, max_tokens, kv_heads), workload, max_tokens, prompt, gpu);
}

PolicyCheck check_policy(const Spec& spec, const reference::Policy& policy,
                         const workload::Workload& workload, int64_t max_tokens, int64_t prompt,
                         cuda::Gpu* gpu) {
  PolicyCheck check;
  check.kernel_bound = kernel_error_bound(spec);
  const RetentionEntry& retention = retention_of(spec);
  const Codec codec = codec_of(spec).make(spec.codec);
  if (!retention.cuts_prompt) prompt = 0;  // other retentions do not depend on it
  const int64_t most = std::min(max_tokens, workload.max_tokens());
  const int64_t n = affordable_tokens(spec, workload.shape(), most, prompt);
  bool evicts = false;
  const int kv_heads = std::min(workload.shape().kv_heads, kCheckedKvHeads);
  for (int head = 0; head < kv_heads; ++head)
    evicts |= retention.slots(spec.retention, {max_tokens, n, prompt, head, kv_heads, codec.units()}) < n;
  if (n < prompt || !evicts) return check;

  const Heads heads = heads_of(workload, n, max_tokens);
  const Observed seen = observe(spec, heads, prompt, gpu);
  const int d = heads.shape.head_dim;
  const std::vector<float> k = as_stored(codec, false, heads.shape.kv_heads, d, heads.k),
                           v = as_stored(codec, true, heads.shape.kv_heads, d, heads.v),
                           waiting_k = as_waiting(codec, false, d, heads.k),
                           waiting_v = as_waiting(codec, true, d, heads.v);
  const reference::PolicyInput input{.q = heads.q,
                                     .k = k,
                                     .v = v,
                                     .raw_k = heads.k,
                                     .raw_v = heads.v,
                                     .waiting_k = waiting_k,
                                     .waiting_v = waiting_v,
                                     .q_heads = heads.shape.q_heads,
                                     .kv_heads = heads.shape.kv_heads,
                                     .n = n,
                                     .head_dim = d,
                                     .prompt = prompt,
                                     .rotation = rotation_of(heads.shape.rope, d)};
  const reference::PolicyRun followed = reference::run_policy(policy, input, &seen.kept);
  check.oracle = "fp64";
  check.tokens = n;
  check.choices = followed.choices;
  check.disputed = followed.disputed;
  check.worst_miss = followed.worst_miss;
  check.out_rel_l2 = relative_l2(std::vector<double>(seen.out.begin(), seen.out.end()), followed.out);
  return check;
}

PolicyCheck joined(const PolicyCheck& a, const PolicyCheck& b) {
  const bool missing = a.oracle == "no_policy" || b.oracle == "no_policy";
  return {.oracle = missing            ? "no_policy"
                    : a.oracle.empty() ? b.oracle
                                       : a.oracle,
          .tokens = std::max(a.tokens, b.tokens),
          .choices = a.choices + b.choices,
          .disputed = a.disputed + b.disputed,
          .worst_miss = std::max(a.worst_miss, b.worst_miss),
          .kernel_bound = std::max(a.kernel_bound, b.kernel_bound),
          .out_rel_l2 = std::max(a.out_rel_l2, b.out_rel_l2)};
}

std::string PolicyCheck::failure() const {
  // Written so that NaN fails.
  if (!(worst_miss <= near_tie(kernel_bound))) {
    return "an eviction is not the FP64 policy's: the score of what was dropped is off by " +
           in_short(worst_miss) + " of the best (bound " + in_short(near_tie(kernel_bound)) + ")";
  }
  if (!(out_rel_l2 <= kernel_bound)) {
    return "outputs differ from the FP64 policy's by " + in_short(out_rel_l2) + " (bound " +
           in_short(kernel_bound) + ")";
  }
  return "";
}

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
         "of the others by " +
         in_short(worst_miss) + " (bound " + in_short(bound) + ")";
}

}  // namespace kv::verify
