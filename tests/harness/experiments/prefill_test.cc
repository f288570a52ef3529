// The prefill and batch experiments: right answers in every arm, the laws that workspace follows, and waste
// that can be counted by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "harness/config/request_lengths.h"
#include "harness/experiments/batch/padding.h"
#include "harness/experiments/driver.h"
#include "harness/experiments/list.h"
#include "harness/experiments/score_attention.h"
#include "harness/measure/time_columns.h"
#include "harness/memory/ledger.h"
#include "harness/memory/machine.h"
#include "harness/results/cell_columns.h"
#include "harness/verify/error_columns.h"
#include "harness/verify/reference/attention.h"
#include "tests/temp.h"

namespace kv {
namespace {

class Experiment : public testing::Test {
 protected:
  config::Config load(const std::string& text) {
    std::ofstream(folder_ / "config.toml") << "threads = 1\n" << text;
    return experiments::load_config((folder_ / "config.toml").string(), {});
  }
  std::vector<results::Row> run(const std::string& text) {
    experiments::RunOptions options;
    options.out = folder_ / "results";
    options.stop = [] { return false; };
    options.note = [](const std::string&) {};
    options.progress = [](int, int, const std::string&, double, double) {};
    return experiments::run_config(load(text), options).cells;
  }
  const test::TempFolder folder_;
};

std::string prefill_config(const std::string& variants, const std::string& more = "") {
  return "experiment = \"prefill\"\n[model]\nq_heads = 4\nkv_heads = 2\nhead_dim = 16\n[sweep]\nvariants = " +
         variants +
         "\nseq_len = [256, 512, 1024]\nchunk = [64, 128]\n[measure]\nrepetitions = 1\nretries = 0\nnull_ab "
         "= false\n" +
         more;
}

double workspace(const std::vector<results::Row>& rows, const std::string& arm, int64_t tokens,
                 int64_t chunk = 0) {
  for (const results::Row& row : rows) {
    const bool same_chunk = chunk == 0 || row[results::kChunkTokens] == chunk;
    if (row[results::kArm] == arm && row[results::kSeqLen] == tokens && same_chunk)
      return static_cast<double>(row[results::kBytesWorkspacePeak].value());
  }
  ADD_FAILURE() << "no " << arm << " at " << tokens;
  return 0.0;
}

TEST_F(Experiment, PrefillWorkspaceFollowsItsLaws) {
  const std::vector<results::Row> rows = run(prefill_config("[\"contiguous\"]"));
  ASSERT_EQ(rows.size(), 18u);
  for (const results::Row& row : rows) {
    EXPECT_EQ(row[results::kStatus], results::Status::kOk)
        << row[results::kCell] << ": " << row[results::kReason];
    EXPECT_EQ(row[results::kPhase], "prefill");
    EXPECT_LT(row[verify::kErrKernelRelL2].value(), 2e-6);
    EXPECT_GT(row[measure::kPrefillP50Us].value(), 0.0);
  }
  // f32 scores of 4 heads, and nothing else.
  for (const int64_t tokens : {256, 512, 1024}) {
    EXPECT_EQ(workspace(rows, "materialised", tokens), 4.0 * 4 * tokens * tokens);
    for (const int64_t chunk : {64, 128}) {
      EXPECT_EQ(workspace(rows, "materialised_chunked", tokens, chunk), 4.0 * 4 * chunk * tokens);
      EXPECT_EQ(workspace(rows, "chunked", tokens, chunk), workspace(rows, "chunked", 256, chunk));
    }
    EXPECT_EQ(workspace(rows, "tiled", tokens), workspace(rows, "tiled", 256));
  }
}

TEST_F(Experiment, PrefillVerifiesCodecsAndRefusesArmsThatCannotBe) {
  const std::vector<results::Row> rows =
      run(prefill_config("[\"paged(block=16)/kivi(group=16,residual=32)\", "
                         "\"contiguous/f16/ring(window=100)\", \"contiguous/f32/h2o\", "
                         "\"contiguous/f16/snapkv(budget=60,window=20)\"]"));
  ASSERT_EQ(rows.size(), 4u * 18);
  for (const results::Row& row : rows) {
    const bool scores = (row[results::kVariant].find("h2o") != std::string::npos ||
                         row[results::kVariant].find("snapkv") != std::string::npos) &&
                        row[results::kArm].find("materialised") == 0;
    EXPECT_EQ(row[results::kStatus], scores ? results::Status::kUnsupported : results::Status::kOk)
        << row[results::kCell] << ": " << row[results::kReason];
  }
}

// The codec's error shows wherever the cache attends, and only there.
TEST_F(Experiment, PrefillInChunksIsOfTheCacheUnderTest) {
  const std::vector<results::Row> rows =
      run("experiment = \"prefill\"\n[model]\nq_heads = 4\nkv_heads = 2\nhead_dim = 32\n[sweep]\nvariants = "
          "\"contiguous/token(bits=4)\"\nseq_len = 300\nchunk = 64\n[measure]\nrepetitions = 1\nretries = "
          "0\nnull_ab = "
          "false\n");
  ASSERT_EQ(rows.size(), 4u);
  const results::Row &tiled = rows[3], &chunked = rows[2];
  ASSERT_EQ(tiled[results::kArm], "tiled");
  ASSERT_EQ(chunked[results::kArm], "chunked");
  EXPECT_EQ(chunked[results::kKernel], tiled[results::kKernel]);
  for (const results::Row* row : {&chunked, &tiled}) {
    const double error = row->number("err_rel_l2").value();
    EXPECT_TRUE(0.03 < error && error < 0.3) << error;
    EXPECT_EQ((*row)[verify::kErrCodecRelL2].value(), tiled[verify::kErrCodecRelL2].value())
        << "the same rows are stored";
  }
  for (const results::Row* row : {&rows[0], &rows[1]}) {
    EXPECT_EQ((*row)[results::kKernel], "eigen/f32");
    EXPECT_LT(row->number("err_rel_l2").value(), 1e-5);
  }
}

TEST_F(Experiment, PrefillGoesOnWhereTheScoresDoNotFit) {
  // Scores of 128 GiB, a part of this machine's memory that is never more than 16.
  const double share = std::min(0.01, 0x1p34 / static_cast<double>(memory::total_memory_bytes()));
  std::vector<results::Row> rows =
      run("experiment = \"prefill\"\n[model]\nq_heads = 512\nkv_heads = 1\nhead_dim = 8\n[sweep]\nvariants = "
          "[\"contiguous\"]\nseq_len = [64, 8192]\nchunk = 8192\n[measure]\nrepetitions = 1\nretries = "
          "0\nnull_ab = "
          "false\nmemory_share = " +
          std::to_string(share) + "\n");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[2][results::kStatus], results::Status::kOutOfMemory);
  EXPECT_NE(rows[2][results::kReason].find("GiB"), std::string::npos) << rows[2][results::kReason];
  EXPECT_FALSE(rows[2][measure::kPrefillP50Us]);
  EXPECT_EQ(rows[0][results::kStatus], results::Status::kOk);
}

TEST(ScoreAttention, AgreesWithFp64InChunksOfAnySize) {
  const workload::WorkloadShape shape{.layers = 1, .q_heads = 4, .kv_heads = 2, .head_dim = 16};
  const int64_t tokens = 37, d = shape.head_dim;
  std::mt19937_64 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(static_cast<size_t>(4 * tokens * d)), k(q.size() / 2), v(k.size());
  for (auto* values : {&q, &k, &v}) {
    for (float& x : *values) x = normal(rng);
  }
  const auto want = reference::attend_causal(q, k, v, 4, 2, tokens, 16);
  for (const int64_t chunk : {1, 5, 36, 37}) {
    for (int64_t first = 0; first < tokens; first += chunk) {
      const int64_t n = std::min(chunk, tokens - first);
      std::vector<float> part(static_cast<size_t>(4 * n * d)), out(part.size());
      for (int h = 0; h < 4; ++h)
        std::copy_n(q.begin() + (h * tokens + first) * d, n * d, part.begin() + h * n * d);
      memory::Ledger ledger;
      experiments::attend_with_scores({part.data(), out.data(), k.data(), v.data(), first, n, tokens}, shape,
                                      ledger);
      EXPECT_EQ(ledger.workspace().peak_bytes, 4 * n * (first + n) * 4);
      EXPECT_EQ(ledger.workspace().current_bytes, 0);
      for (int h = 0; h < 4; ++h) {
        for (int64_t i = 0; i < n * d; ++i) {
          EXPECT_NEAR(out[static_cast<size_t>(h * n * d + i)],
                      want[static_cast<size_t>((h * tokens + first) * d + i)], 1e-5);
        }
      }
    }
  }
}

// Lengths 16, 32 and 500 of one f32 head of 8 channels: a row of K and V is 64 bytes, and 548 are in use.
TEST_F(Experiment, BatchWasteIsWhatCanBeCounted) {
  const std::vector<results::Row> rows =
      run("experiment = \"batch\"\n[model]\nq_heads = 1\nkv_heads = 1\nhead_dim = 8\n[sweep]\nvariants = "
          "[\"contiguous\", \"paged(block=1)\", \"paged\", \"paged(order=shuffled)\", "
          "\"paged(block=64)\"]\nlengths = "
          "\"16,32,500\"\n[measure]\nrepetitions = 1\nretries = 0\nsteps = 40\nnull_ab = false\n");
  ASSERT_EQ(rows.size(), 5u);
  const int64_t rows_held[] = {3 * 500, 548, 16 + 32 + 512, 16 + 32 + 512, 64 + 64 + 512};
  const int64_t block[] = {0, 1, 16, 16, 64};
  for (size_t i = 0; i < rows.size(); ++i) {
    const results::Row& row = rows[i];
    ASSERT_EQ(row[results::kStatus], results::Status::kOk) << row[results::kReason];
    EXPECT_EQ(row[results::kSeqLen], 500);
    EXPECT_EQ(row[results::kBatch], 3);
    // A table a sequence as long as the longest needs, the free list and the counts: 4 bytes an entry.
    const int64_t b = block[i];
    const int64_t metadata = b == 0 ? 0 : 4 * (3 * ((500 + b - 1) / b) + 2 * (rows_held[i] / b));
    const int64_t slack = 64 * (rows_held[i] - 548);
    EXPECT_EQ(row[results::kBytesPayload], 64 * 548);
    EXPECT_EQ(row[results::kBytesMetadata], metadata);
    EXPECT_EQ(row[results::kBytesSlack], slack);
    EXPECT_EQ(row[results::kBytesPredicted], 64 * 548 + metadata + slack);
    const double held = static_cast<double>(64 * 548 + metadata + slack);
    EXPECT_NEAR(row[experiments::kWasteShare].value(), static_cast<double>(slack) / held, 1e-9);
    EXPECT_LT(row.number("err_rel_l2").value(), 2e-6);
    EXPECT_GT(row[measure::kStepP50Us].value(), 0.0);
  }
}

// 952 of the 1,500 rows that are read have no weight, and without them the outputs are those of the ragged batch.
TEST_F(Experiment, PaddingIsHeldAndReadAndGetsNoWeight) {
  const std::vector<results::Row> rows =
      run("experiment = \"batch\"\n[model]\nq_heads = 4\nkv_heads = 2\nhead_dim = 8\nlayers = 2\n[sweep]\n"
          "variants = [\"contiguous\", \"paged/f16\"]\nlengths = \"16,32,500\"\n[measure]\nrepetitions = "
          "1\nretries = 0\nsteps = 12\nnull_ab = false\npadding = true\n");
  ASSERT_EQ(rows.size(), 4u);
  for (const results::Row& row : rows)
    EXPECT_EQ(row[results::kStatus], results::Status::kOk) << row[results::kReason];
  const results::Row &own = rows[0], &unpadded = rows[2], &padded = rows[3];
  EXPECT_EQ(unpadded[results::kVariant], "unpadded");
  EXPECT_EQ(padded[results::kVariant], "padded");
  EXPECT_EQ(padded[results::kKernel], "eigen/f32");
  EXPECT_EQ(padded[results::kVersus], "unpadded");
  EXPECT_EQ(unpadded[results::kVersus], "contiguous");
  EXPECT_NEAR(padded[experiments::kMaskedShare].value(), 952.0 / 1500, 1e-12);
  EXPECT_FALSE(unpadded[experiments::kMaskedShare].has_value());
  for (const results::Row* row : {&unpadded, &padded}) {
    EXPECT_EQ((*row)[results::kBytesPayload], own[results::kBytesPayload]);
    EXPECT_EQ((*row)[results::kBytesSlack], own[results::kBytesSlack])
        << "padding is what a contiguous cache reserves anyway";
    EXPECT_LT((*row)[verify::kErrKernelRelL2].value(), 2e-6);
    EXPECT_GT((*row)[measure::kAttendP50Us].value(), 0.0);
  }
  EXPECT_GT(padded[measure::kRatioP50].value(), 0.0);
  // A mask of three sequences and the scores of four heads, over 500 rows; and lists of spans.
  EXPECT_GE(padded[results::kBytesWorkspacePeak].value(), (3 + 4) * 500 * 4);
  EXPECT_LT(padded[results::kBytesWorkspacePeak].value(), (3 + 4) * 500 * 4 + 2048);
}

// All tokens see all of the prompt: verified against FP64 over all rows, so that a mask left in would fail.
TEST_F(Experiment, PrefillWithoutAMaskIsAnArmWhereItIsAskedFor) {
  const std::vector<results::Row> rows = run(prefill_config("[\"contiguous\"]", "unmasked = true\n"));
  ASSERT_EQ(rows.size(), 3u * 7);
  for (const results::Row& row : rows)
    EXPECT_EQ(row[results::kStatus], results::Status::kOk) << row[results::kCell] << row[results::kReason];
  EXPECT_EQ(rows[1][results::kArm], "materialised_unmasked");
  EXPECT_EQ(workspace(rows, "materialised_unmasked", 512), 4.0 * 4 * 512 * 512);
  EXPECT_LT(rows[1][verify::kErrKernelRelL2].value(), 2e-6);
}

TEST_F(Experiment, BatchHoldsItsClosedFormWhateverTheVariant) {
  const std::vector<results::Row> rows =
      run("experiment = \"batch\"\n[model]\nq_heads = 2\nkv_heads = 2\nhead_dim = 32\nlayers = "
          "2\n[sweep]\nvariants = "
          "[\"doubling/f16\", \"paged(block=32)/kivi\", \"paged/f16/ring(window=50)\", \"segmented/q4_0\", "
          "\"paged/f32/snapkv\"]\nlengths = [\"uniform(1,200)\", \"7,300,7\"]\nbatch = [4, "
          "5]\n[measure]\nrepetitions = 1\nretries = 0\n");
  // A list is one batch, not one a value of the batch axis; and the A/A test.
  ASSERT_EQ(rows.size(), 3u * 6);
  for (const results::Row& row : rows) {
    EXPECT_EQ(row[results::kStatus], results::Status::kOk)
        << row[results::kCell] << ": " << row[results::kReason];
    EXPECT_EQ(row[results::kBytesPayload].value() + row[results::kBytesMetadata].value() +
                  row[results::kBytesSlack].value(),
              row[results::kBytesPredicted].value());
  }
}

TEST(RequestLengths, AreDrawnAsWritten) {
  EXPECT_EQ(config::draw_lengths("16, 32,500", 99, 1), (std::vector<int64_t>{16, 32, 500}));
  const auto uniform = config::draw_lengths("uniform(16,512)", 4000, 1),
             zipf = config::draw_lengths("zipf(16,512)", 4000, 1);
  EXPECT_EQ(uniform, config::draw_lengths("uniform(16,512)", 4000, 1));
  EXPECT_NE(uniform, config::draw_lengths("uniform(16,512)", 4000, 2));
  const auto mean = [](const std::vector<int64_t>& x) {
    double sum = 0.0;
    for (const int64_t v : x) {
      EXPECT_TRUE(v >= 16 && v <= 512) << v;
      sum += static_cast<double>(v);
    }
    return sum / static_cast<double>(x.size());
  };
  // Means 264 and (512 - 16) / ln(513 / 16) = 143; the standard errors are 2.3 and 2.1.
  EXPECT_NEAR(mean(uniform), 264.0, 10.0);
  EXPECT_NEAR(mean(zipf), 143.0, 10.0);
  // Both ends are drawn: of one and two tokens, ln 2 / ln 3 are one.
  const auto two = config::draw_lengths("zipf(1,2)", 4000, 1);
  EXPECT_NEAR(static_cast<double>(std::count(two.begin(), two.end(), 1)) / 4000, 0.631, 0.03);
}

TEST(RequestLengths, ComeFromTraces) {
  const test::TempFolder folder;
  std::ofstream(folder / "a.csv")
      << "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.98,374,44\n";
  std::ofstream(folder / "m.jsonl")
      << R"({"timestamp": 0, "input_length": 10, "output_length": 5, "hash_ids": [1]})"
      << "\n";
  std::ofstream(folder / "bad.jsonl") << "{\n";
  const auto draw = [&](const char* name) {
    return config::draw_lengths("trace(" + (folder / name).string() + ")", 2, 1);
  };
  EXPECT_EQ(draw("a.csv"), (std::vector<int64_t>{418, 418}));
  EXPECT_EQ(draw("m.jsonl"), (std::vector<int64_t>{15, 15}));
  // The last line may lack its line feed.
  std::ofstream(folder / "cut.csv") << "TIMESTAMP,ContextTokens,GeneratedTokens\n0,3,4";
  EXPECT_EQ(draw("cut.csv"), (std::vector<int64_t>{7, 7}));
  EXPECT_THROW(draw("bad.jsonl"), std::invalid_argument);
  EXPECT_THROW(draw("absent.csv"), std::invalid_argument);
}

}  // namespace
}  // namespace kv
