// Every policy that evicts is a cost of each slot: the cheapest goes, of equals the lowest slot; an infinite
// cost protects.
#include "harness/reference_policies.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "harness/random.h"

namespace kv::reference {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

struct Slot {
  int64_t token;
  double norm = 0.0;  // of its key, as it came
  double mass = 0.0;  // attention received so far
  double last = 0.0;  // attention from the newest query
};

int64_t capacity(const Policy& p) {
  if (p.name == "full" || p.name == "snapkv") return kUnlimited;
  if (p.name == "ring") return p.sinks + p.window;
  if (p.name == "h2o") return p.heavy + p.recent;
  if (p.name == "tova" || p.name == "knorm" || p.name == "random") return p.budget;
  throw std::logic_error("reference: no policy is called '" + p.name + "'");
}

// What dropping each slot costs when token `t` needs one.
std::vector<double> costs(const Policy& p, const std::vector<Slot>& slots, int64_t t, uint64_t head) {
  std::vector<double> cost(slots.size(), kInfinite);
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& s = slots[i];
    if (p.name == "ring" && s.token >= p.sinks) cost[i] = static_cast<double>(s.token);
    if (p.name == "h2o" && s.token <= t - p.recent) cost[i] = s.mass;
    if (p.name == "tova") cost[i] = s.last;
    if (p.name == "knorm") cost[i] = -s.norm;
  }
  if (p.name == "random") {
    cost[random::below(random::key({p.seed, head}), static_cast<uint64_t>(t), slots.size())] = 0.0;
  }
  return cost;
}

// How far `got` lies from the best value, as a share of that.
double miss(double got, double best) {
  if (got == best) return 0.0;
  return best == 0.0 ? kInfinite : std::abs(got - best) / std::abs(best);
}

// One kv head and the query heads that read it.
class Head {
 public:
  Head(const Policy& policy, const PolicyInput& input, int head, PolicyRun& run)
      : policy_(policy), in_(input), head_(head), run_(run) {
    if (policy.cache_positions) turns_ = Turns(input.rotation, std::min(capacity(policy), input.n));
  }

  // `seen`: the tokens that a followed cache holds after this step, or empty.
  void step(int64_t t, const std::vector<int64_t>& seen) {
    store(t, seen);
    if (policy_.name == "snapkv" && t == in_.prompt - policy_.window) {
      for (Slot& s : slots_) s.mass = 0.0;  // only the window votes
    }
    attend(t);
    if (policy_.name == "snapkv" && t == in_.prompt - 1 && in_.prompt > policy_.budget) cut_prompt(seen);
    auto& kept = run_.kept[static_cast<size_t>(head_)].emplace_back();
    for (const Slot& s : slots_) kept.push_back(s.token);
  }

 private:
  std::span<const float> row(std::span<const float> of, int64_t head, int64_t t) const {
    return of.subspan(static_cast<size_t>((head * in_.n + t) * in_.head_dim),
                      static_cast<size_t>(in_.head_dim));
  }

  void store(int64_t t, const std::vector<int64_t>& seen) {
    size_t at = slots_.size();
    if (static_cast<int64_t>(at) < capacity(policy_)) {
      slots_.push_back({});
      k_.resize(k_.size() + static_cast<size_t>(in_.head_dim));
      v_.resize(k_.size());
    } else {
      at = choose(t, seen);
    }
    const auto raw = row(in_.raw_k.empty() ? in_.k : in_.raw_k, head_, t);
    slots_[at] = {.token = t};
    for (const float x : raw) slots_[at].norm += static_cast<double>(x) * x;
    put(at, row(in_.k, head_, t), row(in_.v, head_, t));
  }

  void put(size_t slot, std::span<const float> k, std::span<const float> v) {
    const auto at = static_cast<std::ptrdiff_t>(slot) * in_.head_dim;
    std::copy(k.begin(), k.end(), k_.begin() + at);
    std::copy(v.begin(), v.end(), v_.begin() + at);
  }

  size_t choose(int64_t t, const std::vector<int64_t>& seen) {
    const uint64_t head = static_cast<uint64_t>(in_.layer) * in_.kv_heads + head_;
    const std::vector<double> cost = costs(policy_, slots_, t, head);
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
    for (Slot& s : slots_) s.last = 0.0;
    const std::vector<int64_t> back = policy_.cache_positions ? places_back() : std::vector<int64_t>();
    for (int h = head_ * group; h < (head_ + 1) * group; ++h) {
      const std::span<const float> q = row(in_.q, h, t);
      const HeadResult result = policy_.cache_positions
                                    ? attend_turned(q, k_, v_, turns_, back)
                                    : reference::attend(q, k_, v_, static_cast<int64_t>(slots_.size()));
      for (size_t i = 0; i < slots_.size(); ++i)
        slots_[i].last += result.probabilities[static_cast<Eigen::Index>(i)];
      std::copy(result.out.begin(), result.out.end(), run_.out.begin() + (h * in_.n + t) * in_.head_dim);
    }
    for (Slot& s : slots_) s.mass += s.last;
  }

  // A key stands as many places before the query as there are younger tokens in the cache.
  std::vector<int64_t> places_back() const {
    std::vector<size_t> youngest_first(slots_.size());
    std::iota(youngest_first.begin(), youngest_first.end(), size_t{0});
    std::sort(youngest_first.begin(), youngest_first.end(),
              [&](size_t a, size_t b) { return slots_[a].token > slots_[b].token; });
    std::vector<int64_t> places(slots_.size());
    for (size_t i = 0; i < places.size(); ++i) places[youngest_first[i]] = static_cast<int64_t>(i);
    return places;
  }

  // The sum of the votes of a prompt's token and of its neighbours, for every token before the window.
  std::vector<double> pooled_votes() const {
    const int64_t voted = in_.prompt - policy_.window, reach = (policy_.kernel - 1) / 2;
    std::vector<double> sums(static_cast<size_t>(voted), 0.0);
    for (int64_t i = 0; i < voted; ++i) {
      for (int64_t j = i - reach; j <= i + reach; ++j) {
        if (j >= 0 && j < voted) sums[static_cast<size_t>(i)] += slots_[static_cast<size_t>(j)].mass;
      }
    }
    return sums;
  }

  void cut_prompt(const std::vector<int64_t>& seen) {
    const std::vector<double> votes = pooled_votes();
    std::vector<int64_t> order(votes.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return votes[static_cast<size_t>(a)] > votes[static_cast<size_t>(b)];
    });
    order.resize(static_cast<size_t>(policy_.budget - policy_.window));
    std::sort(order.begin(), order.end());
    for (int64_t t = in_.prompt - policy_.window; t < in_.prompt; ++t) order.push_back(t);
    if (!seen.empty()) judge_cut(votes, order, seen);
    keep(seen.empty() ? order : seen);
  }

  // The least vote that was kept against the largest that was not.
  void judge_cut(const std::vector<double>& votes, const std::vector<int64_t>& best,
                 const std::vector<int64_t>& seen) {
    const int64_t voted = static_cast<int64_t>(votes.size());
    const bool lawful = seen.size() == best.size() && std::is_sorted(seen.begin(), seen.end()) &&
                        std::equal(best.end() - policy_.window, best.end(), seen.end() - policy_.window);
    double least = kInfinite, most = 0.0;
    for (int64_t t = 0; t < voted; ++t) {
      const double vote = votes[static_cast<size_t>(t)];
      if (std::binary_search(seen.begin(), seen.end(), t)) {
        least = std::min(least, vote);
      } else {
        most = std::max(most, vote);
      }
    }
    judge(!lawful ? kInfinite : least < most ? miss(least, most) : 0.0, lawful && seen == best);
  }

  void keep(const std::vector<int64_t>& tokens) {
    std::vector<Slot> kept;
    for (size_t to = 0; to < tokens.size(); ++to) {  // in a prompt, slots are tokens
      kept.push_back(slots_[static_cast<size_t>(tokens[to])]);
      put(to, row(in_.k, head_, tokens[to]), row(in_.v, head_, tokens[to]));
    }
    slots_ = kept;
    k_.resize(tokens.size() * static_cast<size_t>(in_.head_dim));
    v_.resize(k_.size());
  }

  const Policy& policy_;
  const PolicyInput& in_;
  int head_;
  PolicyRun& run_;
  std::vector<Slot> slots_;
  std::vector<float> k_, v_;  // [slots, head_dim]
  Turns turns_;               // where the policy has cache_positions
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
  if (capacity(policy) < 1) throw std::logic_error("reference: a policy keeps at least one row");
  PolicyRun run;
  run.out.resize(input.q.size());
  run.kept.resize(static_cast<size_t>(input.kv_heads));
  for (int h = 0; h < input.kv_heads; ++h) {
    Head head(policy, input, h, run);
    for (int64_t t = 0; t < input.n; ++t) {
      head.step(t,
                follow ? (*follow)[static_cast<size_t>(h)][static_cast<size_t>(t)] : std::vector<int64_t>());
    }
  }
  return run;
}

}  // namespace kv::reference
