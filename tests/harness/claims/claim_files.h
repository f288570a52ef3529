// Claim files in a folder of their own, and runs that they can use.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <list>
#include <string>
#include <vector>

#include "harness/claims/reproduce.h"
#include "tests/message_of.h"
#include "tests/temp.h"

namespace kv {

namespace fs = std::filesystem;

class Claims : public testing::Test {
 protected:
  // Kept as long as the fixture: figures point into it.
  const claims::ClaimFile& load(const std::string& text) {
    std::ofstream(folder_ / "paper.toml") << "document = \"a paper\"\n" << text;
    files_.push_back({claims::load_claims((folder_ / "paper.toml").string())});
    return files_.back().front();
  }

  claims::Reproduction run(bool quick = false, int64_t measured_up_to = int64_t{1} << 30) {
    const auto quiet = [](auto&&...) {};
    return claims::reproduce(files_.back(), {.out = folder_ / ("out" + std::to_string(++runs_)),
                                             .quick = quick,
                                             .threads = 1,
                                             .measured_up_to = measured_up_to,
                                             .stop = [] { return false; },
                                             .note = quiet,
                                             .progress = [&](const std::string&) { return quiet; }});
  }

  // "verdict: reason" of every figure of one claim.
  std::vector<claims::FigureResult> figures(const std::string& keys, const std::string& head = "") {
    load(head + claim(keys));
    return run().figures;
  }
  claims::FigureResult only(const std::string& keys, const std::string& head = "") {
    return figures(keys, head).at(0);
  }

  static std::string claim(const std::string& keys) {
    return "[[claim]]\nid = \"c\"\ntext = \"t\"\nwhere = \"w\"\nquote = \"q\"\n" + keys + "\n";
  }

  const test::TempFolder folder_;
  int runs_ = 0;
  std::list<std::vector<claims::ClaimFile>> files_;
};

inline const char* const kRuns = R"(
[run.small]
experiment = "budget"
threads = 1
seeds = [1, 2, 3, 4, 5]
model = { q_heads = 2, kv_heads = 1, head_dim = 32 }
sweep = { variants = ["contiguous", "contiguous/q8_0", "contiguous/q4_0", "paged/kivi"], seq_len = [64], workload = ["gaussian"] }
measure = { steps = 4 }
[run.timed]
experiment = "growth"
threads = 1
model = { q_heads = 2, kv_heads = 1, head_dim = 32 }
sweep = { variants = ["concat", "doubling"], seq_len = [100, 200] }
measure = { attend = false, repetitions = 5, null_ab = false }
)";

}  // namespace kv
