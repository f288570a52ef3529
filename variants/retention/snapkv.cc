// snapkv: the prompt is cut down once, by what its last queries look at (Li et al. 2024, arXiv:2404.14469).
//
// The prompt is the first step of more than one token on an empty sequence; it attends in full. If it is
// longer than `budget`, then at its end the queries of its last `window` tokens vote: an earlier token's
// votes are the probabilities they gave it, summed over them and over the head's group of query heads, then
// averaged over `kernel` neighbours so that a find keeps its surroundings. The budget - window tokens with
// the most votes stay (of equal ones the earliest), and the window. Rows move to the front in the order of
// their tokens; all later tokens are kept.
//
// The authors' code votes for every query head alone, having copied the keys to each; here a kv head has one
// set of rows.
//
// Counted in the ledger: an i32 token id for each of the `budget` slots. Votes are workspace.
#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "variants/list.h"
#include "variants/retention/positions.h"

namespace kv::retention {
namespace {

struct Settings {
  int64_t budget, window, kernel;
  // Throws std::invalid_argument if the numbers do not fit together.
  Settings(const Stage& stage, int64_t max_tokens)
      : budget(stage.rows("budget", max_tokens)),
        window(stage.integer("window")),
        kernel(stage.integer("kernel")) {
    if (budget <= window) {
      throw std::invalid_argument("snapkv: budget (" + std::to_string(budget) +
                                  " rows) must be larger than window (" + std::to_string(window) + ")");
    }
    if (kernel % 2 == 0)
      throw std::invalid_argument("snapkv: kernel must be odd, not " + std::to_string(kernel));
  }
};

// The sum of each vote and its (kernel - 1) / 2 neighbours on both sides; beyond the ends there are none.
std::vector<float> pooled(std::span<const float> votes, int64_t kernel) {
  const int64_t n = static_cast<int64_t>(votes.size()), reach = kernel / 2;
  std::vector<float> sums(votes.size());
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = std::max<int64_t>(0, i - reach); j <= std::min(n - 1, i + reach); ++j)
      sums[i] += votes[j];
  }
  return sums;
}

// The `count` places of the largest values, in ascending order; of equal values the first.
std::vector<int64_t> largest(const std::vector<float>& values, int64_t count) {
  std::vector<int64_t> places(values.size());
  std::iota(places.begin(), places.end(), int64_t{0});
  std::nth_element(places.begin(), places.begin() + count, places.end(), [&](int64_t a, int64_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  places.resize(static_cast<size_t>(count));
  std::sort(places.begin(), places.end());
  return places;
}

class SnapKv : public Retention {
 public:
  SnapKv(const Settings& settings, const RetentionContext& context)
      : settings_(settings),
        memory_(context.memory),
        kept_(*memory_, static_cast<size_t>(bytes(settings, context.max_tokens)), ByteKind::kMetadata) {}
  SnapKv(const SnapKv& other)
      : Retention(other),
        settings_(other.settings_),
        memory_(other.memory_),
        count_(other.count_),
        prompt_(other.prompt_),
        dropped_(other.dropped_),
        kept_(*memory_, other.kept_.size(), ByteKind::kMetadata) {
    memory_->copy(kept_.data(), other.kept_.data(), kept_.size());
  }
  std::unique_ptr<Retention> clone() const override { return std::make_unique<SnapKv>(*this); }

  int64_t admit(std::span<const float>) override { return count_++ - dropped_; }
  int64_t slots() const override { return count_ - dropped_; }
  int64_t token_at(int64_t slot) const override {
    return dropped_ > 0 && slot < settings_.budget ? kept()[slot] : slot + dropped_;
  }
  int64_t slots_after(int64_t tokens) const override { return tokens - dropped_; }

  // A prompt that is too long comes in two slices, of which only the voters' is scored.
  Slice next(int64_t remaining) override {
    if (count_ == 0) prompt_ = remaining > settings_.budget ? remaining : 0;
    if (count_ == 0 && prompt_ > 0) return {.tokens = prompt_ - settings_.window, .scored = false};
    return {.tokens = remaining, .scored = prompt_ > 0 && count_ == prompt_ - settings_.window};
  }

  void observe(std::span<const float> weights) override {
    const std::vector<float> votes =
        pooled(weights.first(static_cast<size_t>(prompt_ - settings_.window)), settings_.kernel);
    keep_ = largest(votes, settings_.budget - settings_.window);
    for (int64_t i = prompt_ - settings_.window; i < prompt_; ++i) keep_.push_back(i);
  }

  std::vector<int64_t> compact() override {
    std::copy(keep_.begin(), keep_.end(), kept());
    dropped_ = prompt_ - settings_.budget;
    return std::exchange(keep_, {});
  }

  int64_t earliest() const override { return prompt_; }
  void truncate(int64_t tokens) override { count_ = tokens; }

  void save(Writer& to) const override {
    for (const int64_t number : {count_, prompt_, dropped_}) to.put(number);
    if (dropped_ > 0) to.put(std::span<const int32_t>(kept(), static_cast<size_t>(settings_.budget)));
  }
  bool load(Reader& from, int64_t tokens) override {
    for (int64_t* number : {&count_, &prompt_, &dropped_}) *number = from.get<int64_t>();
    if (count_ != tokens) return false;
    if (prompt_ == 0) return dropped_ == 0;
    if (prompt_ <= settings_.budget || prompt_ > count_ || dropped_ != prompt_ - settings_.budget)
      return false;
    const std::span kept_tokens(kept(), static_cast<size_t>(settings_.budget));
    from.get(kept_tokens);
    return kept_tokens.front() >= 0 && kept_tokens.back() < prompt_ &&
           std::adjacent_find(kept_tokens.begin(), kept_tokens.end(), std::greater_equal<>()) ==
               kept_tokens.end();
  }

  static int64_t bytes(const Settings& settings, int64_t max_tokens) {
    return std::min(settings.budget, max_tokens) * static_cast<int64_t>(sizeof(int32_t));
  }

 private:
  int32_t* kept() const { return reinterpret_cast<int32_t*>(kept_.data()); }

  Settings settings_;
  Memory* memory_;
  int64_t count_ = 0;
  int64_t prompt_ = 0;   // its tokens, if it is longer than the budget
  int64_t dropped_ = 0;  // tokens of the prompt that are gone
  Block kept_;           // i32 [budget]: their tokens, once some are gone
  std::vector<int64_t> keep_;
};

std::unique_ptr<Retention> make(const Stage& stage, const RetentionContext& context) {
  return std::make_unique<SnapKv>(Settings(stage, context.max_tokens), context);
}
int64_t slots(const Stage& stage, const SequenceLengths& lengths) {
  return lengths.tokens - std::max<int64_t>(0, lengths.prompt - Settings(stage, lengths.max_tokens).budget);
}
int64_t metadata_bytes(const Stage& stage, int64_t max_tokens) {
  return SnapKv::bytes(Settings(stage, max_tokens), max_tokens);
}

}  // namespace

const RetentionEntry snapkv{
    {.name = "snapkv",
     .help = "cuts a long prompt down to what its last queries look at, and keeps all that follows",
     .source = "SnapKV, Li et al. 2024 (arXiv:2404.14469)",
     .parameters =
         {Parameter::rows("budget", "256", {48}, "rows that the prompt is cut down to, the window included"),
          Parameter::integer("window", "32", 1, 1024, {16}, "last tokens of the prompt: they vote, and stay"),
          Parameter::integer("kernel", "5", 1, 63, {7}, "neighbours that votes are averaged over; odd"),
          positions_parameter()}},
    make,
    slots,
    metadata_bytes,
    /*keeps_all=*/false,
    /*scores=*/true,
    /*cuts_prompt=*/true,
    "a prompt that was cut stays cut"};

}  // namespace kv::retention
