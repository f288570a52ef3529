#include "harness/experiments/serve/axes.h"

#include <charconv>
#include <stdexcept>

#include "harness/io/bytes.h"

namespace kv::experiments {
namespace {

using config::SharedTable;
constexpr double kMostScale = 1e6;

void check_room(const std::string& text) {
  if (text != "all") io::parse_bytes(text, "room");
}

void check_sharing(const std::string& text) {
  if (text != "on" && text != "off")
    throw std::invalid_argument("'" + text + "' is neither \"on\" nor \"off\"");
}

void check_batching(const std::string& text) { scheduler_of(text); }

}  // namespace

planner::SchedulerSettings scheduler_of(const std::string& batching) {
  planner::SchedulerSettings settings{.step_tokens = config::kMaxTokens, .lockstep = batching == "static"};
  if (settings.lockstep || batching == "whole") return settings;
  const char* const end = batching.data() + batching.size();
  const auto [at, error] = std::from_chars(batching.data(), end, settings.step_tokens);
  if (error != std::errc() || at != end || settings.step_tokens < 1 ||
      settings.step_tokens > config::kMaxTokens)
    throw std::invalid_argument("batching '" + batching +
                                "' is neither \"static\", \"whole\" nor the tokens of a step, as \"128\"");
  return settings;
}

const config::Axis<std::string> kRoomAxis{
    kRoom,
    "room",
    SharedTable::kOwn,
    {"all"},
    config::text_list(check_room),
    "memory for caches; all: for max_running requests of the whole context"};
const config::Axis<std::string> kSharingAxis{kSharing,
                                             "sharing",
                                             SharedTable::kOwn,
                                             {"off"},
                                             config::text_list(check_sharing),
                                             "on: prompts that begin alike share blocks of rows"};
const config::Key<std::vector<std::string>> kBatchingKey{
    "batching",
    SharedTable::kOwn,
    {"whole"},
    config::text_list(check_batching),
    "static, whole, or the most tokens of a step of continuous batches"};
const config::Key<int64_t> kContextTokensKey{"context", SharedTable::kOwn, 0,
                                             config::tokens(0, config::kMaxTokens),
                                             "longest request; 0: what the model was trained for"};
const config::Key<double> kLengthScaleKey{"length_scale", SharedTable::kOwn, 1.0,
                                          config::number(1.0 / kMostScale, kMostScale),
                                          "tokens of a request here / in the trace"};
const config::Key<double> kRateScaleKey{"rate_scale", SharedTable::kOwn, 1.0,
                                        config::number(1.0 / kMostScale, kMostScale),
                                        "requests a second here / in the trace"};

}  // namespace kv::experiments
