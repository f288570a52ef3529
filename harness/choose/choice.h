// The rule by which `kvlab choose` decides: which caches are confirmed on text that chose none of them, and which of these may be
// named.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kv::choose {

// Loss above the full f32 cache's on the same tokens, nats, with the ends of its 95 % interval.
struct ExtraLoss {
  double value = 0, low = 0, high = 0;
};

struct Candidate {
  std::string spec;
  int64_t bytes = 0;  // of all users' caches at the whole context
  ExtraLoss calibrated = {};
  std::optional<ExtraLoss> confirmed = {};  // on held-out text
};

// The one-sided bound that the true losses of `together` caches all keep with 95 % (Bonferroni).
double upper_bound(const ExtraLoss& loss, int together);

// Those to be confirmed, of the caches that fit: the one with the least calibrated loss; those that cannot be told apart from it; then
// those whose interval ends below the limit. Each part has the fewest bytes first, and all are `most` at most, of which the last part has
// a third. Empty where none fits.
std::vector<size_t> to_confirm(std::span<const Candidate> candidates, int64_t memory_bytes, double most_loss,
                               size_t most);

struct Choice {
  std::vector<size_t>
      best;  // keep the limit and cannot be told apart from the one with the least loss, fewest bytes first
  std::optional<size_t> fewest = {};  // keeps the limit in the fewest bytes
};
// Judges confirmed caches by their held-out losses; a cache keeps the limit if its upper bound does.
Choice choice_of(std::span<const Candidate> candidates, double most_loss);

}  // namespace kv::choose
