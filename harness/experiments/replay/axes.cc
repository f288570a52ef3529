#include "harness/experiments/replay/axes.h"

#include "harness/config/config.h"
#include "harness/io/bytes.h"

namespace kv::experiments {
namespace {

using config::Section;
using config::SharedTable;
constexpr double kMostRate = 1e30;

void check_bytes(const std::string& text) { io::parse_bytes(text, "memory"); }

ClockConfig read_clock(Section& section, const std::string& key, const ClockConfig& fallback) {
  const bool given = section.has(key);
  Section device = section.section(key);
  ClockConfig clock{.measured = device.text("measured", ""),
                    .read_gbps = device.number("read_gbps", 0.0, 1e-9, kMostRate),
                    .flops = device.number("flops", 0.0, 1e-9, kMostRate),
                    .link_gbps = device.number("link_gbps", 0.0, 1e-9, kMostRate)};
  if (!given) return fallback;
  device.refuse_the_rest();
  const bool stated = clock.read_gbps > 0.0 && clock.flops > 0.0;
  if (!stated && (clock.measured.empty() || clock.read_gbps > 0.0 || clock.flops > 0.0))
    section.fail(
        key,
        "needs read_gbps and flops, as in {read_gbps = 1008, flops = 165e12}, or measured = \"FOLDER\", "
        "the results of a run");
  return clock;
}

}  // namespace

const config::Axis<std::string> kMemoryAxis{kMachine,
                                            "memory",
                                            SharedTable::kOwn,
                                            {},
                                            config::text_list(check_bytes),
                                            "memory of the machine",
                                            "memory = [\"24GB\"], the machine's"};
const config::Axis<int64_t> kReplayStepTokensAxis{kStepTokens,          "step_tokens",
                                                  SharedTable::kOwn,    {2048},
                                                  config::token_list(), "largest number of tokens in a step"};

const config::Key<std::string> kPreemptKey{
    "preempt", SharedTable::kOwn, "recompute", config::choice({"recompute", "swap"}),
    "a preempted sequence's rows are computed again, or moved over a link"};
const config::Key<int64_t> kWeightsKey{"weights", SharedTable::kOwn, 0,
                                       [](Section& section, const std::string& key, const int64_t& fallback) {
                                         return section.bytes(key, fallback, 1, INT64_MAX);
                                       },
                                       "bytes of the weights; 0: from the model's file"};
const config::Key<std::vector<int64_t>> kPrefixBlocksKey{"prefix_blocks",
                                                         SharedTable::kOwn,
                                                         {},
                                                         config::token_list(),
                                                         "blocks of hit-rate curves; none: the trace's own"};
const config::Key<ClockConfig> kClockKey{
    "device", SharedTable::kOwn, {}, read_clock, "source of a step's time"};

void check_replay_keys(const Section& own, const config::ExperimentConfig& sweep) {
  const config::Settings& r = sweep.settings;
  const bool drawn = r[kTraceAxis].front().empty(), has_prefix = r[kPrefixKey] > 0;
  if (has_prefix && !drawn) own.fail("prefix", "applies to drawn requests only, not to a trace");
  if (r[kShareKey] > 0 && drawn && !has_prefix)
    own.fail("share", "needs a trace with ids of blocks, or drawn requests with a prefix in common");
  if (r[kPreemptKey] == "swap" && r[kClockKey].link_gbps == 0.0)
    own.fail("preempt", "moves rows over a link: give link_gbps in device");
  if (drawn && !has_prefix && !r[kPrefixBlocksKey].empty())
    own.fail("prefix_blocks", "needs a trace with ids of blocks, or drawn requests with a prefix in common");
}

}  // namespace kv::experiments
