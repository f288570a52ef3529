// The rule by which `kvlab choose` decides: which caches are confirmed on text that chose none of them, and which of these may be
// named.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kv::choose {

// Stretches of text that a loss is read on at least; 64 tokens each.
inline constexpr int kFewestStretches = 16;

// Loss above the full f32 cache's on the same tokens, nats: the mean of stretches of the text, with its standard error and degrees of
// freedom, and the ends of Student's 95 % interval.
struct ExtraLoss {
  double value = 0, error = 0, degrees = 0;
  double low() const;
  double high() const;
};

// Tokens a second of each user while all decode, with the ends of its 95 % interval.
struct Rate {
  double value = 0, low = 0, high = 0;
};

struct Candidate {
  std::string spec;
  int64_t bytes = 0;  // of all users' caches at the whole context
  ExtraLoss calibrated = {};
  std::optional<ExtraLoss> confirmed = {};  // on held-out text
  std::optional<Rate> speed = {};
};

// Student's one-sided bound that the true losses of `together` caches all keep with 95 % (Bonferroni), at the length that was read.
double upper_bound(const ExtraLoss& loss, int together);

// Those to be confirmed, of the caches that fit: the one with the least calibrated loss; those that cannot be told apart from it; then
// those whose interval ends below the limit. Each part has the fewest bytes first, and all are `most` at most, of which the last part has
// a third. Empty where none fits.
std::vector<size_t> to_confirm(std::span<const Candidate> candidates, int64_t memory_bytes, double most_loss,
                               size_t most);

// Those confirmed whose upper bound keeps the limit, fewest bytes first.
std::vector<size_t> keeping(std::span<const Candidate> candidates, double most_loss);

// Of those that keep the limit, and whose rate's whole interval is `least_rate` or more where that is not 0.
struct Choice {
  std::vector<size_t> best;  // cannot be told apart from the one with the least loss, fewest bytes first
  std::optional<size_t> fewest = {};  // bytes
};
Choice choice_of(std::span<const Candidate> candidates, double most_loss, double least_rate = 0);

}  // namespace kv::choose
