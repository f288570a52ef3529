// The rule by which `kvlab choose` decides: which caches are confirmed on text that chose none of them, and which of these may be
// named.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/measure/exposure.h"
#include "harness/results/cell_columns.h"
#include "harness/results/estimate.h"
#include "harness/results/table.h"

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

// How much of a choice fits into a time, by how long the first window of its text took.
struct FirstWindow {
  double seconds;             // of all caches
  double confirmation_share;  // of that, for a window of the confirmation
  double mixture_windows;     // as many take as long as the mixture's reading by layer
};

struct FittingParts {
  int windows;  // of the calibration, and of the confirmation; 0: not even one
  bool mixture;
};
// All of `asked` that `seconds` have room for beside the first window; the mixture only if it leaves the windows half of the time.
FittingParts fitting_parts(double seconds, const FirstWindow& first, const FittingParts& asked);

// Time of so many windows with everything else but the mixture.
double seconds_for(int windows, const FirstWindow& first);

inline constexpr results::IntegerColumn kBytes{
    "bytes", "bytes", "payload, metadata and slack of all users' caches at the context"};
inline constexpr auto kCalibrated = results::estimate<"calibrated">(
    "nats", "loss above the full f32 cache's on the first windows of the text");
inline constexpr auto kHeldOut = results::estimate<"held_out">(
    "nats", "the same on the windows after these, for caches that were confirmed");
inline constexpr results::NumberColumn kHeldOutBound{
    "held_out_bound", "nats", "bound that the true losses of all confirmed caches keep together with 95 %"};
inline constexpr auto kUserRate = results::estimate<"user_tokens_per_s">(
    "tokens/s",
    "tokens per second of each user at the context while all decode, for caches that keep the limit");
inline constexpr results::IntegerColumn kWindow{
    "window", "tokens", "tokens of a window of the text: the length that losses and bounds are for"};
inline constexpr auto kAnswer =
    results::TextColumn{
        "answer", "",
        "best: keeps the limits, and nothing is surely better; keeps: keeps them, another is surely better; "
        "slow: for --tokens-per-second; over: its bound is above the limit; too_large: for the memory; left: "
        "not confirmed; untested: not measured, as its windows expose less than 0.9 of what the context does"}
        .one_of("best keeps slow over too_large left untested");
inline constexpr auto kChoiceColumns =
    results::column_list(results::kVariant, kBytes, kWindow, kCalibrated, kHeldOut, kHeldOutBound, kUserRate,
                         measure::kEncodedShare, measure::kDroppedShare, measure::kStatedContext,
                         measure::kContextEncodedShare, measure::kContextDroppedShare, kAnswer);
inline const results::Table kChoiceTable{"the table of choices",
                                         {kChoiceColumns.begin(), kChoiceColumns.end()}};

}  // namespace kv::choose
