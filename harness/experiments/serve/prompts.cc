#include "harness/experiments/serve/prompts.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/math/random.h"

namespace kv::experiments {
namespace {

int64_t scaled_tokens(int64_t tokens, double scale) {
  return tokens == 0 ? 0 : std::max<int64_t>(1, std::llround(static_cast<double>(tokens) * scale));
}

// `count` tokens from a drawn place on; the text begins again where it ends.
void append_stretch(std::span<const int> text, uint64_t key, int64_t count, std::vector<int>& to) {
  const auto size = static_cast<uint64_t>(text.size());
  const uint64_t from = math::random::below(key, 0, size);
  for (int64_t i = 0; i < count; ++i) to.push_back(text[(from + static_cast<uint64_t>(i)) % size]);
}

}  // namespace

std::vector<ServedRequest> with_prompts(planner::RequestSource source, const RequestScale& scale,
                                        std::span<const int> text, uint64_t seed) {
  constexpr uint64_t kPrompts = 0x70726f6d707473;  // "prompts"
  std::vector<ServedRequest> all;
  io::Request request;
  while (source.next(request)) {
    ServedRequest& served = all.emplace_back(ServedRequest{.request = request, .prompt = {}});
    io::Request& of = served.request;
    of.arrival_s /= scale.rate;
    of.prompt_tokens = std::max<int64_t>(1, scaled_tokens(of.prompt_tokens, scale.lengths));
    of.output_tokens = scaled_tokens(of.output_tokens, scale.lengths);
    const int64_t unit =
        of.prefix_ids.empty() ? of.prompt_tokens : scaled_tokens(of.id_tokens, scale.lengths);
    for (uint64_t block = 0; std::ssize(served.prompt) < of.prompt_tokens; ++block) {
      // Rounding may leave more blocks than ids.
      const int64_t id =
          of.prefix_ids.empty() || block >= of.prefix_ids.size() ? -std::ssize(all) : of.prefix_ids[block];
      append_stretch(text, math::random::key({seed, kPrompts, static_cast<uint64_t>(id), block}),
                     std::min(unit, of.prompt_tokens - std::ssize(served.prompt)), served.prompt);
    }
  }
  return all;
}

std::vector<io::Request> by_content(std::span<const ServedRequest> requests, int64_t unit) {
  std::map<std::vector<int>, int64_t> number;
  std::vector<io::Request> all;
  for (const ServedRequest& served : requests) {
    io::Request& request = all.emplace_back(served.request);
    request.id_tokens = unit;
    request.prefix_ids.clear();
    for (auto at = served.prompt.begin(); at != served.prompt.end();) {
      const auto end = at + std::min<int64_t>(unit, served.prompt.end() - at);
      request.prefix_ids.push_back(
          number.emplace(std::vector<int>(at, end), std::ssize(number)).first->second);
      at = end;
    }
  }
  return all;
}

}  // namespace kv::experiments
