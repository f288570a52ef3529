// A wrong cache leaves the driver as `failed`, with the reason and without times, and its neighbours are measured.
//
// The faults come in where variants do. The linker takes from a static library only what a program lacks, so the
// entries and the storage that this file defines stand in the place of the product's, and everything above them is
// the product. Each fault is of a kind: rows in wrong places, a codec worse than it says, an eviction that is not the
// policy's, attention that is wrong.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "harness/experiments/driver.h"
#include "harness/experiments/list.h"
#include "harness/experiments/written_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"
#include "kernels/format/encoding.h"
#include "tests/temp.h"
#include "variants/list.h"
#include "variants/placement/placement.h"
#include "variants/storage/host_storage.h"

namespace kv {
namespace {

// A contiguous cache that swaps the rows of two neighbouring tokens, or only their V.
template <bool kSwapsK>
class Swapped : public Placement {
 public:
  explicit Swapped(const PlacementContext& context)
      : Placement(placement::contiguous, default_stage(placement::contiguous), context),
        units_(context.max_units) {}
  UnitAddress at(int sequence, int layer, int head, int64_t unit) override {
    UnitAddress address = Placement::at(sequence, layer, head, unit);
    const int64_t neighbour = unit ^ 1;
    if (unit >= 8 || neighbour >= units_) return address;
    const UnitAddress other = Placement::at(sequence, layer, head, neighbour);
    for (const Plane plane : {kVData, kVMeta}) address.plane[plane] = other.plane[plane];
    return kSwapsK ? other : address;
  }

 private:
  const int64_t units_;
};

template <bool kSwapsK>
std::unique_ptr<Placement> make_swapped(const PlacementTraits&, const Stage&,
                                        const PlacementContext& context) {
  return std::make_unique<Swapped<kSwapsK>>(context);
}
int64_t bytes_of_contiguous(const Stage& stage, const PlacementContext& context, int64_t used) {
  return placement::contiguous.layer_bytes(stage, context, used);
}

// 8 bits a value with the interval of 16.
Codec make_coarse(const Stage&) {
  Codec codec = codec::fp8.make(default_stage(codec::fp8));
  codec.k_error = codec.v_error = {1.2e-3, 2.4e-3};
  return codec;
}

// The stage, evicting by h2o's rule instead of tova's.
Stage as_h2o(const Stage& stage) {
  const int64_t budget = stage.integer("budget");
  Stage h2o = default_stage(retention::h2o);
  h2o.values["heavy"] = std::to_string(budget - 4);
  h2o.values["recent"] = "4";
  return h2o;
}
std::unique_ptr<Retention> make_disobedient(const Stage& stage, const RetentionContext& context) {
  return retention::h2o.make(as_h2o(stage), context);
}
int64_t slots_of_h2o(const Stage& stage, const SequenceLengths& lengths) {
  return retention::h2o.slots(as_h2o(stage), lengths);
}
int64_t metadata_of_h2o(const Stage& stage, int64_t max_tokens) {
  return retention::h2o.metadata_bytes(as_h2o(stage), max_tokens);
}

// Attention over rows of f16 is off by 1 % in one element of one query head.
class WrongAttention : public HostStorage {
 public:
  using HostStorage::HostStorage;
  void attend(std::span<const HeadQueries> problems, const StreamedRows* streamed) override {
    HostStorage::attend(problems, streamed);
    for (const HeadQueries& problem : problems) problem.out[3] *= 1.01f;
  }
};

}  // namespace

namespace placement {
const PlacementEntry segmented{{.name = "segmented", .help = "", .source = "", .parameters = {}},
                               {.layer_bytes = bytes_of_contiguous, .make = make_swapped<true>}};
const PlacementEntry doubling{{.name = "doubling", .help = "", .source = "", .parameters = {}},
                              {.layer_bytes = bytes_of_contiguous, .make = make_swapped<false>}};
}  // namespace placement

namespace codec {
const CodecEntry bf16{{.name = "bf16", .help = "", .source = "", .parameters = {}}, {.make = make_coarse}};
}  // namespace codec

namespace retention {
const RetentionEntry tova{
    {.name = "tova", .help = "", .source = "", .parameters = {Parameter::rows("budget", "256", {}, "")}},
    {.make = make_disobedient, .slots = slots_of_h2o, .metadata_bytes = metadata_of_h2o, .scores = true}};
}  // namespace retention

std::unique_ptr<Storage> make_storage(const StorageContext& context) {
  if (context.codec.k.format == Format::kF16) return std::make_unique<WrongAttention>(context);
  return std::make_unique<HostStorage>(context);
}
std::string unstorable_reason(const cuda::Gpu*, int) { return ""; }
std::string unattendable_reason(const cuda::Gpu*, bool, bool) { return ""; }

namespace {

class BrokenVariants : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::ofstream(folder_ / "test.toml")
        << "experiment = '" << GetParam() << "'\nthreads = 1\n"
        << "[model]\nq_heads = 4\nkv_heads = 2\nhead_dim = 32\n"
        << "[sweep]\nseq_len = 96\nworkload = 'gaussian'\nvariants = ['contiguous', 'segmented', 'doubling', "
           "'contiguous/bf16', 'contiguous/tova(budget=16)', 'contiguous/f16', 'contiguous/q8_0', "
           "'contiguous/h2o(heavy=12,recent=4)']\n"
        << "[measure]\nrepetitions = 5\nsteps = 8\ncold_steps = 0\n";
    const auto outcome = experiments::run_config(experiments::load_config(folder_ / "test.toml", {}),
                                                 {.out = folder_ / "out",
                                                  .resume = false,
                                                  .stop = [] { return false; },
                                                  .note = [](const std::string&) {},
                                                  .progress = [](auto&&...) {}});
    ASSERT_TRUE(outcome.finished);
    for (const results::Row& row : outcome.cells) {
      if (row[results::kVerdict] != results::kAaVerdict) rows_.emplace(row[results::kVariant], row);
    }
    ASSERT_EQ(rows_.size(), 8u);
  }

  // Lines of samples.csv and growth.csv about this cell.
  int samples_of(const results::Row& row) const {
    int count = 0;
    for (const char* name : {"samples.csv", "growth.csv"}) {
      std::ifstream file(folder_ / "out" / name);
      for (std::string line; std::getline(file, line);)
        count += line.find(row[results::kCell]) != std::string::npos;
    }
    return count;
  }

  void expect_failed(const std::string& variant, const std::string& reason) const {
    const results::Row& row = rows_.at(variant);
    EXPECT_EQ(text_of(row[results::kStatus]), "failed") << variant;
    EXPECT_NE(row[results::kReason].find(reason), std::string::npos)
        << variant << ": " << row[results::kReason];
    const auto& schema = experiments::cell_table();
    for (const char* column :
         {"step_p50_us", "step_p90_us", "step_p99_us", "step_max_us", "step_ci_low_us", "append_p50_us",
          "view_p50_us", "attend_p50_us", "read_gbps", "repetitions", "samples", "ratio_p50"}) {
      EXPECT_FALSE(row.number(schema.at(column))) << variant << ": " << column;
    }
    EXPECT_EQ(samples_of(row), 0) << variant;
  }

  const test::TempFolder folder_;
  std::map<std::string, results::Row> rows_;
};

TEST_P(BrokenVariants, AreFailedAndNotTimed) {
  expect_failed("segmented", "K of token 0 is not as f32 stores it");
  expect_failed("doubling", "V of token 0 is not as f32 stores it");
  expect_failed("contiguous/bf16", "the codec's error of K is 0.0");
  expect_failed("contiguous/tova(budget=16)", "an eviction is not the FP64 policy's");
  expect_failed("contiguous/f16", "attention differs from FP64 on the same stored rows");
}

TEST_P(BrokenVariants, EndNoOtherCell) {
  for (const char* variant : {"contiguous", "contiguous/q8_0", "contiguous/h2o(heavy=12,recent=4)"}) {
    const results::Row& row = rows_.at(variant);
    EXPECT_EQ(text_of(row[results::kStatus]), "ok") << variant << ": " << row[results::kReason];
    EXPECT_GT(row[measure::kStepP50Us].value_or(0), 0) << variant;
    EXPECT_EQ(row[measure::kRepetitions], 5) << variant;
    EXPECT_GT(samples_of(row), 0) << variant;
  }
}

INSTANTIATE_TEST_SUITE_P(Experiments, BrokenVariants, testing::Values("decode", "growth"));

}  // namespace
}  // namespace kv
