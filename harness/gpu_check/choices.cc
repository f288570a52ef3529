#include "harness/gpu_check/choices.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "harness/gpu_check/device_bytes.h"

namespace kv::gpu_check {
namespace {

// The policy by its definition: a free slot, else that of the smallest score that is not recent. NaN is larger than numbers,
// and the lowest slot wins ties.
int32_t slot_for(const std::vector<int32_t>& token, const std::vector<float>& score, int32_t count,
                 int32_t recent) {
  if (count < std::ssize(token)) return count;
  size_t victim = token.size();
  for (size_t slot = 0; slot < token.size(); ++slot) {
    if (token[slot] > count - recent) continue;
    const bool smaller = victim == token.size() || score[slot] < score[victim] ||
                         (std::isnan(score[victim]) && !std::isnan(score[slot]));
    if (smaller) victim = slot;
  }
  return static_cast<int32_t>(victim);
}

}  // namespace

std::string wrong_choice(cuda::Gpu& gpu, bool newest_query, uint64_t seed) {
  constexpr int32_t kBudget = 300, kRecent = 20, kFirst = 260;
  constexpr size_t kBytes = kBudget * sizeof(float);
  std::mt19937_64 random(seed);
  std::vector<int32_t> token(kBudget, -1);
  std::vector<float> score(kBudget, NAN);
  std::iota(token.begin(), token.begin() + kFirst, 0);
  std::fill_n(score.begin(), kFirst, 0.0f);
  const DeviceBytes tokens = upload(gpu, token), scores = upload(gpu, score),
                    slot = upload(gpu, std::vector<int32_t>{-1});
  const DeviceBytes head =
      upload(gpu, std::vector<cuda::ScoredSlots>{{tokens.as<int32_t>(), scores.as<float>()}});
  for (int32_t count = kFirst; count < kBudget + 40; ++count) {
    const int32_t want = slot_for(token, score, count, kRecent);
    token[static_cast<size_t>(want)] = count;
    if (newest_query && count >= kBudget) score.assign(kBudget, 0.0f);
    score[static_cast<size_t>(want)] = 0.0f;
    gpu.choose_slots(
        {head.as<cuda::ScoredSlots>(), slot.as<int32_t>(), kBudget, kRecent, count, newest_query}, 1);
    int32_t got = -1;
    std::vector<int32_t> got_token(kBudget);
    std::vector<float> got_score(kBudget);
    gpu.copy(&got, slot.as<int32_t>(), sizeof got);
    gpu.copy(got_token.data(), tokens.as<int32_t>(), kBytes);
    gpu.copy(got_score.data(), scores.as<float>(), kBytes);
    const std::string of = " of token " + std::to_string(count);
    if (got != want) return "slot " + std::to_string(got) + " instead of " + std::to_string(want) + of;
    if (got_token != token) return "tokens" + of;
    if (std::memcmp(got_score.data(), score.data(), kBytes) != 0) return "scores" + of;
    for (int32_t s = 0; s < std::min(count + 1, kBudget); ++s)
      score[static_cast<size_t>(s)] +=
          random() % 64 == 0 ? NAN : static_cast<float>(random() % 4);  // many ties
    gpu.copy(scores.as<float>(), score.data(), kBytes);
  }
  return "";
}

}  // namespace kv::gpu_check
