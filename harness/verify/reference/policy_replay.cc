#include "harness/verify/reference/policy_replay.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace kv::reference {
namespace {

// Relative distance of `got` from the best value.
double miss(double got, double best) {
  if (got == best) return 0.0;
  return best == 0.0 ? kInfinite : std::abs(got - best) / std::abs(best);
}

// The slots that a cut keeps, in order.
std::vector<int64_t> best_of(const Cut& cut) {
  std::vector<int64_t> order(cut.score.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return cut.score[static_cast<size_t>(a)] > cut.score[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(cut.rows));
  std::sort(order.begin(), order.end());
  return order;
}

// Relative distance by which the smallest kept score misses the largest dropped score.
double cut_miss(const Cut& cut, const std::vector<int64_t>& kept) {
  const int64_t slots = static_cast<int64_t>(cut.score.size());
  const bool increasing = std::adjacent_find(kept.begin(), kept.end(), std::greater_equal<>()) == kept.end();
  if (static_cast<int64_t>(kept.size()) != cut.rows || !increasing || kept.front() < 0 ||
      kept.back() >= slots)
    return kInfinite;
  double least = kInfinite, most = 0.0;
  for (int64_t i = 0; i < slots; ++i) {
    const double score = cut.score[static_cast<size_t>(i)];
    if (std::binary_search(kept.begin(), kept.end(), i)) {
      least = std::min(least, score);
    } else {
      most = std::max(most, score);
    }
  }
  if (std::isinf(most)) return kInfinite;  // a protected slot was dropped
  return least < most ? miss(least, most) : 0.0;
}

// One kv head and the query heads that read it.
class Head {
 public:
  Head(const Rule& rule, const Policy& policy, const PolicyInput& input, int head, PolicyRun& run)
      : rule_(rule),
        cache_positions_(policy.cache_positions),
        groups_(policy.groups),
        in_(input),
        head_(head),
        run_(run) {
    if (cache_positions_) rotations_ = RotationTable(input.rotation, std::min(rule.capacity(), input.n));
  }

  // `seen`: tokens that a followed cache holds after this step, or empty.
  void step(int64_t t, const std::vector<int64_t>& seen) {
    store(t, seen);
    if (rule_.restarts_weights(t, in_.prompt)) {
      for (Slot& s : slots_) s.accumulated_weight = 0.0;
    }
    attend(t);
  }

  // The cut, once all of the prompt has attended.
  std::optional<Cut> find_cut() const {
    const int group = in_.q_heads / in_.kv_heads;
    Prompt prompt{.tokens = in_.prompt, .head_dim = in_.head_dim, .group = group, .rotation = &in_.rotation};
    for (int64_t t = 0; t < in_.prompt; ++t) {
      prompt.k.push_back(row(in_.raw_k.empty() ? in_.k : in_.raw_k, head_, t));
      prompt.v.push_back(row(in_.raw_v.empty() ? in_.v : in_.raw_v, head_, t));
    }
    for (int h = head_ * group; h < (head_ + 1) * group; ++h)
      for (int64_t t = 0; t < in_.prompt; ++t) prompt.q.push_back(row(in_.q, h, t));
    return rule_.cut(slots_, prompt);
  }

  // Slots are tokens while a prompt is read.
  void cut_prompt(const Cut& cut, const std::vector<int64_t>& seen) {
    const std::vector<int64_t> best = best_of(cut);
    if (seen.empty()) return keep(best);
    const double by = cut_miss(cut, seen);
    judge(by, seen == best);
    keep(std::isinf(by) ? best : seen);
  }

  void record() {
    auto& kept = run_.kept[static_cast<size_t>(head_)].emplace_back();
    for (const Slot& s : slots_) kept.push_back(s.token);
  }

 private:
  std::span<const float> row(std::span<const float> of, int64_t head, int64_t t) const {
    return of.subspan(static_cast<size_t>((head * in_.n + t) * in_.head_dim),
                      static_cast<size_t>(in_.head_dim));
  }

  // All rows anew: some have been stored since they came, and groups are gone. Nothing of a slot but its token counts.
  void store_grouped(int64_t t, const std::vector<int64_t>& seen) {
    const auto [begin, end] = rule_.gone(t + 1, groups_);
    slots_.clear();
    for (int64_t token = 0; token <= t; ++token) {
      if (token < begin || token >= end) slots_.push_back({.token = token});
    }
    k_.resize(slots_.size() * static_cast<size_t>(in_.head_dim));
    v_.resize(k_.size());
    for (size_t i = 0; i < slots_.size(); ++i) {
      const int64_t token = slots_[i].token;
      const bool waits = token >= groups_.stored_end(t + 1) && !in_.waiting_k.empty();
      put(i, row(waits ? in_.waiting_k : in_.k, head_, token),
          row(waits ? in_.waiting_v : in_.v, head_, token));
    }
    if (seen.empty()) return;
    std::vector<int64_t> sorted = seen;
    std::sort(sorted.begin(), sorted.end());
    const bool same = std::equal(sorted.begin(), sorted.end(), slots_.begin(), slots_.end(),
                                 [](int64_t token, const Slot& slot) { return token == slot.token; });
    if (end > begin || !same) judge(same ? 0.0 : kInfinite, same);
  }

  void store(int64_t t, const std::vector<int64_t>& seen) {
    if (!groups_.are_single()) return store_grouped(t, seen);
    size_t at = slots_.size();
    if (static_cast<int64_t>(at) < rule_.capacity()) {
      slots_.push_back({});
      k_.resize(k_.size() + static_cast<size_t>(in_.head_dim));
      v_.resize(k_.size());
    } else {
      at = choose(t, seen);
    }
    const auto raw = row(in_.raw_k.empty() ? in_.k : in_.raw_k, head_, t);
    slots_[at] = {.token = t};
    for (const float x : raw) slots_[at].squared_norm += static_cast<double>(x) * x;
    put(at, row(in_.k, head_, t), row(in_.v, head_, t));
  }

  void put(size_t slot, std::span<const float> k, std::span<const float> v) {
    const auto at = static_cast<std::ptrdiff_t>(slot) * in_.head_dim;
    std::copy(k.begin(), k.end(), k_.begin() + at);
    std::copy(v.begin(), v.end(), v_.begin() + at);
  }

  size_t choose(int64_t t, const std::vector<int64_t>& seen) {
    const int64_t layer_head = int64_t{in_.layer} * in_.kv_heads + head_;
    const std::vector<double> cost = rule_.costs(slots_, {t, layer_head});
    const size_t best = static_cast<size_t>(std::min_element(cost.begin(), cost.end()) - cost.begin());
    if (seen.empty()) return best;
    const size_t slot = static_cast<size_t>(std::find(seen.begin(), seen.end(), t) - seen.begin());
    bool lawful = seen.size() == slots_.size() && slot < seen.size();
    for (size_t i = 0; lawful && i < seen.size(); ++i) lawful = i == slot || seen[i] == slots_[i].token;
    judge(lawful ? miss(cost[slot], cost[best]) : kInfinite, lawful && slot == best);
    return lawful ? slot : best;
  }

  void judge(double by, bool same) {
    ++run_.choices;
    run_.disputed += !same;
    run_.worst_miss = std::max(run_.worst_miss, by);
  }

  void attend(int64_t t) {
    const int group = in_.q_heads / in_.kv_heads;
    for (Slot& s : slots_) s.last_weight = 0.0;
    const std::vector<int64_t> distance = cache_positions_ ? distances() : std::vector<int64_t>();
    for (int h = head_ * group; h < (head_ + 1) * group; ++h) {
      const std::span<const float> q = row(in_.q, h, t);
      const HeadResult result = cache_positions_
                                    ? attend_rotated(q, k_, v_, rotations_, distance)
                                    : reference::attend(q, k_, v_, static_cast<int64_t>(slots_.size()));
      for (size_t i = 0; i < slots_.size(); ++i)
        slots_[i].last_weight += result.probabilities[static_cast<Eigen::Index>(i)];
      std::copy(result.out.begin(), result.out.end(), run_.out.begin() + (h * in_.n + t) * in_.head_dim);
    }
    for (Slot& s : slots_) s.accumulated_weight += s.last_weight;
  }

  // Cache positions from each key to the query: the number of younger tokens in the cache.
  std::vector<int64_t> distances() const {
    std::vector<size_t> youngest_first(slots_.size());
    std::iota(youngest_first.begin(), youngest_first.end(), size_t{0});
    std::sort(youngest_first.begin(), youngest_first.end(),
              [&](size_t a, size_t b) { return slots_[a].token > slots_[b].token; });
    std::vector<int64_t> distance(slots_.size());
    for (size_t i = 0; i < distance.size(); ++i) distance[youngest_first[i]] = static_cast<int64_t>(i);
    return distance;
  }

  void keep(const std::vector<int64_t>& tokens) {
    std::vector<Slot> kept;
    for (size_t to = 0; to < tokens.size(); ++to) {
      kept.push_back(slots_[static_cast<size_t>(tokens[to])]);
      put(to, row(in_.k, head_, tokens[to]), row(in_.v, head_, tokens[to]));
    }
    slots_ = kept;
    k_.resize(tokens.size() * static_cast<size_t>(in_.head_dim));
    v_.resize(k_.size());
  }

  const Rule& rule_;
  const bool cache_positions_;
  const Groups groups_;
  const PolicyInput& in_;
  int head_;
  PolicyRun& run_;
  std::vector<Slot> slots_;
  std::vector<double> k_, v_;  // [slots, head_dim]
  RotationTable rotations_;    // only if the policy has cache_positions
};

void check(const PolicyInput& in) {
  const size_t kv = static_cast<size_t>(in.kv_heads * in.n * in.head_dim);
  if (in.kv_heads < 1 || in.q_heads % in.kv_heads != 0 || in.k.size() != kv || in.v.size() != kv ||
      (!in.raw_k.empty() && in.raw_k.size() != kv) ||
      in.q.size() != static_cast<size_t>(in.q_heads * in.n * in.head_dim)) {
    throw std::logic_error("reference: q must be [q_heads, n, head_dim], k and v [kv_heads, n, head_dim]");
  }
}

}  // namespace

PolicyRun run_policy(const Policy& policy, const PolicyInput& input, const KeptTokens* follow) {
  check(input);
  const Oracle* oracle = find_oracle(policy.name);
  if (!oracle) throw std::logic_error("reference: no policy is called '" + policy.name + "'");
  PolicyRun run;
  run.out.resize(input.q.size());
  run.kept.resize(static_cast<size_t>(input.kv_heads));
  std::vector<std::unique_ptr<Rule>> rules;
  std::vector<Head> heads;
  for (int h = 0; h < input.kv_heads; ++h) {
    Parameters parameters = policy.parameters;
    parameters["kv_head"] = h;
    rules.push_back(oracle->make(parameters));
    if (rules.back()->capacity() < 1) throw std::logic_error("reference: a policy keeps at least one row");
    heads.emplace_back(*rules.back(), policy, input, h, run);
  }
  const auto seen = [&](size_t h, int64_t t) {
    return follow ? (*follow)[h][static_cast<size_t>(t)] : std::vector<int64_t>();
  };
  for (int64_t t = 0; t < input.n; ++t) {
    for (size_t h = 0; h < heads.size(); ++h) heads[h].step(t, seen(h, t));
    if (t == input.prompt - 1) {
      std::vector<Cut> cuts;
      for (const Head& head : heads) {
        if (std::optional<Cut> cut = head.find_cut()) cuts.push_back(std::move(*cut));
      }
      if (!cuts.empty()) rules.front()->settle(cuts);
      for (size_t h = 0; h < cuts.size(); ++h) heads[h].cut_prompt(cuts[h], seen(h, t));
    }
    for (Head& head : heads) head.record();
  }
  return run;
}

}  // namespace kv::reference
