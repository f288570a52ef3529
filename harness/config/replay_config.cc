#include "harness/config/replay_config.h"

#include <stdexcept>

#include "harness/config/axes.h"
#include "harness/config/request_lengths.h"
#include "harness/io/bytes.h"

namespace kv::config {
namespace {

constexpr double kMostRate = 1e30;

std::string read_lengths_of(Section& section, const std::string& key, const std::string& fallback) {
  const std::string text = section.text(key, fallback);
  try {
    check_lengths(text);
  } catch (const std::invalid_argument& e) {
    section.fail(key, std::string("has a mistake: ") + e.what());
  }
  return text;
}

void read_memory(Section& section, std::vector<std::string>& memory) {
  memory = section.texts("memory", memory);
  refuse_repeats(section, "memory", memory);
  for (const std::string& text : memory) {
    try {
      io::parse_bytes(text, "memory");
    } catch (const std::invalid_argument& e) {
      section.fail("memory", std::string("is no number of bytes: ") + e.what());
    }
  }
}

void read_clock(Section& section, ClockConfig& clock) {
  if (!section.has("device")) return;
  Section device = section.section("device");
  clock = {};
  clock.read_gbps = device.number("read_gbps", 0.0, 1e-9, kMostRate);
  clock.flops = device.number("flops", 0.0, 1e-9, kMostRate);
  clock.link_gbps = device.number("link_gbps", 0.0, 1e-9, kMostRate);
  clock.measured = device.text("measured", "");
  device.refuse_the_rest();
  const bool stated = clock.read_gbps > 0.0 && clock.flops > 0.0;
  if (!stated && (clock.measured.empty() || clock.read_gbps > 0.0 || clock.flops > 0.0))
    section.fail(
        "device",
        "needs read_gbps and flops, as in {read_gbps = 1008, flops = 165e12}, or measured = \"FOLDER\", "
        "the results of a run");
}

}  // namespace

void read_replay(Section& section, ReplayConfig& r) {
  r.trace = section.texts("trace", r.trace);
  refuse_repeats(section, "trace", r.trace);
  r.arrivals = section.texts("arrivals", r.arrivals);
  refuse_repeats(section, "arrivals", r.arrivals);
  r.prompt = read_lengths_of(section, "prompt", r.prompt);
  r.output = read_lengths_of(section, "output", r.output);
  r.prefix = section.tokens("prefix", r.prefix, 0, kMaxTokens);
  if (r.prefix > 0 && !r.trace.empty())
    section.fail("prefix", "is of drawn requests; those of a trace begin as it says");
  r.requests = section.integer("requests", r.requests, 1, 1000000000);
  read_memory(section, r.memory);
  r.weights_bytes = section.bytes("weights", r.weights_bytes, 1, INT64_MAX);
  r.step_tokens = section.token_list("step_tokens", r.step_tokens, 1, kMaxTokens);
  refuse_repeats(section, "step_tokens", r.step_tokens);
  r.max_running = static_cast<int>(section.integer("max_running", r.max_running, 1, 65536));
  r.watermark = section.number("watermark", r.watermark, 0.0, 1.0);
  r.preempt = section.choice("preempt", r.preempt, {"recompute", "swap"});
  r.share = section.tokens("share", r.share, 0, kMaxTokens);
  if (r.share > 0 && r.trace.empty() && r.prefix == 0)
    section.fail("share", "needs a trace with ids of blocks, or drawn requests with a prefix in common");
  read_clock(section, r.clock);
  if (section.has("limit")) {
    Section limit = section.section("limit");
    r.limit_ttft_s = limit.number("ttft_s", r.limit_ttft_s, 0.0, 1e9);
    r.limit_tpot_ms = limit.number("tpot_ms", r.limit_tpot_ms, 0.0, 1e9);
    limit.refuse_the_rest();
  }
  r.prefix_blocks = section.token_list("prefix_blocks", r.prefix_blocks, 1, kMaxTokens);
  refuse_repeats(section, "prefix_blocks", r.prefix_blocks);
  if (r.preempt == "swap" && r.clock.link_gbps == 0.0)
    section.fail("preempt", "moves rows over a link: give link_gbps in device");
  if (r.trace.empty() && r.prefix == 0 && section.has("prefix_blocks"))
    section.fail("prefix_blocks",
                 "needs a trace with ids of blocks, or drawn requests with a prefix in common");
}

}  // namespace kv::config
