// Tests of the shim: each barrier, wait and shuffle of the kernels is left out once, and a test must notice each time. It also
// runs the checks of wrappers that `kvlab gpu-check` runs on a GPU.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "harness/gpu_check/wrappers.h"
#include "kernels/cuda/attention/evict.h"
#include "kernels/cuda/attention/read_back.h"
#include "kernels/cuda/attention/words.h"
#include "kernels/cuda/encode/append.h"
#include "kernels/cuda/refuse.h"
#include "tests/kernels/cuda/cuda_attention.h"
#include "tests/kernels/cuda/simt_gpu.h"
#include "variants/core/rope.h"

namespace kv {
namespace {

using namespace test;
using simt::Launch;
using simt::Machine;

// Runs a kernel with the settings `how`; returns true if the results are right. A machine that throws counts as wrong.
using Experiment = std::function<bool(const Launch& how)>;

bool is_right(const Experiment& experiment, const Launch& how) {
  try {
    return experiment(how);
  } catch (const std::logic_error&) {
    return false;
  }
}

std::string source_line(const simt::Site& site) {
  std::ifstream file(std::string(KVLAB_SOURCE_DIR) + "/" + site.file.substr(site.file.rfind("kernels/")));
  std::string line;
  for (unsigned i = 0; i < site.line; ++i) std::getline(file, line);
  return line;
}

// The lines whose omission no seed shows.
std::vector<std::string> unnoticed(const Experiment& experiment) {
  std::set<simt::Site> sites;
  EXPECT_TRUE(is_right(experiment, {.seed = 1, .seen = &sites}));
  EXPECT_FALSE(sites.empty());
  std::vector<std::string> lines;
  for (const simt::Site& site : sites) {
    bool noticed = false;
    for (unsigned seed = 1; seed <= 12 && !noticed; ++seed) {
      noticed = !is_right(experiment, {.seed = seed, .skipped = site});
    }
    if (!noticed) lines.push_back(site.call + " in" + source_line(site));
  }
  return lines;
}

// Scores grow from tile to tile, so that the maximum must follow them; channels differ in size.
void fill_unequally(GpuProblem& p) {
  const auto head_dim = static_cast<size_t>(p.shape.head_dim);
  std::vector<float> k = gaussian(static_cast<size_t>(p.encoded.rows()) * head_dim, 5),
                     v = gaussian(k.size(), 6);
  for (size_t i = 0; i < k.size(); ++i) {
    const float channel = std::exp2(static_cast<float>(i % 8));
    k[i] *= channel * (1.0f + static_cast<float>(i / head_dim) / 32.0f);
    if (i < p.q.size()) p.q[i] /= channel;
  }
  p.encoded.fill(k, v);
}

Experiment decodes(const GpuCase& shape, AttentionPlan::Cut cut = AttentionPlan::Cut::kEven) {
  return [=](const Launch& how) {
    std::vector<GpuProblem> problems = make_problems({shape});
    fill_unequally(problems.front());
    SimtGpu gpu;
    gpu.settings = how;
    const bool plain = cut == AttentionPlan::Cut::kPlain;
    GpuBatch batch(gpu, problems, {.cut = cut, .item_rows = plain ? kSimpleRows : kFastRows});
    batch.step();
    batch.fetch();
    return problems.front().relative_error() < 1e-4;  // scores are large
  };
}

void expect_lines(const std::vector<std::string>& lost, const std::vector<std::string>& expected) {
  ASSERT_EQ(lost.size(), expected.size()) << testing::PrintToString(lost);
  for (size_t i = 0; i < lost.size(); ++i) EXPECT_NE(lost[i].find(expected[i]), std::string::npos) << lost[i];
}

TEST(Shim, NoticesEveryLossInDecode) {
  // Several splits, so that the last block merges, and long rows, whose queries a block's warps share.
  const GpuCase coded{.codec = kivi(4), .rows = 704, .placing = kTiny};
  const GpuCase long_rows{.codec = same(kF16), .head_dim = 256, .rows = 500};
  // Not noticeable: blocks run one after the other, so no block sees another's count early; and lanes that load operands or find
  // rows together are in step without the barriers that order memory.
  const std::vector<std::string> expected = {"before one of them counts the block",
                                             "lanes read bytes that others copied",
                                             "the next copies overwrite the tile"};
  expect_lines(unnoticed(decodes(coded)), expected);
  expect_lines(unnoticed(decodes(long_rows)), expected);
}

// The same barriers go unnoticed here, and those around scales that a warp clears.
TEST(Shim, NoticesEveryLossInChunks) {
  const GpuCase coded{.codec = kivi(4), .rows = 416, .n = 64, .placing = kTiny};
  const GpuCase long_rows{.codec = same(kF16), .head_dim = 256, .rows = 400, .n = 32};
  const std::string counts = "before one of them counts the block",
                    clears = "lanes clear bytes that others copied", cleared = "other lanes' scales";
  expect_lines(unnoticed(decodes(coded)), {counts, clears, cleared});
  expect_lines(unnoticed(decodes(long_rows)), {counts});
}

TEST(Shim, NoticesEveryLossInThePlainKernelAndTheMerge) {
  EXPECT_TRUE(unnoticed(decodes({.codec = same(kF16), .rows = 70}, AttentionPlan::Cut::kPlain)).empty());
}

TEST(Shim, NoticesEveryLossInAppend) {
  for (const Encoding& e : {kFp8s[0], kQ8, kQ4, token(4, true)}) {
    const auto lost = unnoticed([&](const Launch& how) {
      auto rows = gaussian(16 * 64, 1);
      for (float& x : rows) x += 5.0f;
      rows[3 * 64 + 9] = INFINITY;
      SimtGpu gpu;
      gpu.settings = how;
      return gpu_check::append_difference(gpu, same(e), 64, kContiguous, rows, rows).empty();
    });
    EXPECT_TRUE(lost.empty()) << encoding_name(e) << testing::PrintToString(lost);
  }
}

TEST(Shim, NoticesEveryLossInTurningCopies) {
  for (const RopePairs pairs : {RopePairs::kInterleaved, RopePairs::kHalfSplit}) {
    const Rope rope{.theta = 100.0, .pairs = pairs};
    EXPECT_TRUE(
        unnoticed([&](const Launch& how) {
          PagedHead head(same(kF16), 64, kPaged, 20);
          head.fill(gaussian(20 * 64, 1), gaussian(20 * 64, 2));
          std::vector<float> k(20 * 64, NAN), v(20 * 64, NAN), want = head.decoded(false), angles(20 * 64);
          std::vector<int32_t> place(20);
          for (int row = 0; row < 20; ++row) {
            place[static_cast<size_t>(row)] = 19 - row;
            float* own = angles.data() + (19 - row) * 64;
            rope_angles(rope, 64, 19 - row, own);
            rotate(pairs, 64, own, want.data() + row * 64, want.data() + row * 64);
          }
          const cuda::CopyJob job{head.pages.data(), nullptr, 20, 0, k.data(), v.data(), place.data()};
          Launch launch = how;
          launch.grid = {20 / cuda::kCopyWarps};
          launch.threads = cuda::kCopyWarps * simt::kWarp;
          Machine::run(launch, [&] {
            cuda::copy_rows({head.layout, head.layout, &job, angles.data(), pairs == RopePairs::kHalfSplit});
          });
          return k == want && v == head.decoded(true);
        }).empty());
  }
}

TEST(Shim, NoticesEveryLossInEviction) {
  EXPECT_TRUE(unnoticed([](const Launch& how) {
                const auto lightest = static_cast<int32_t>(how.seed * 37 % 300);
                std::vector<int32_t> token(300, 0);
                std::vector<float> score(300, 2.0f), forgotten(300, 0.0f);
                score[static_cast<size_t>(lightest)] = 1.0f;
                const cuda::ScoredSlots head{token.data(), score.data()};
                int32_t slot = -1;
                Launch launch = how;
                launch.threads = cuda::kEvictWarps * simt::kWarp;
                launch.shared_bytes = cuda::kEvictSharedBytes;
                Machine::run(launch, [&] { cuda::choose_slot({&head, &slot, 300, 4, 300, true}); });
                return slot == lightest && score == forgotten;
              }).empty());
}

// ---- errors of every schedule ----

void expect_failure(const Launch& launch, const std::function<void()>& kernel, const std::string& what) {
  try {
    Machine::run(launch, kernel);
    FAIL() << "ran through; wanted: " << what;
  } catch (const std::logic_error& error) {
    EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
  }
}

TEST(Shim, RefusesWhatAGpuWouldHangOrTrapOn) {
  expect_failure(
      {.threads = 64},
      [] {
        if (simt::warp() == 0) simt::sync_block();
      },
      "wait for each other");
  expect_failure(
      {.threads = 32},
      [] {
        if (simt::lane() < 7) simt::sync_warp();
      },
      "wait for each other");
  expect_failure(
      {.threads = 32}, [] { simt::lane() < 16 ? static_cast<void>(simt::shuffle(1, 0)) : simt::sync_warp(); },
      "meet in");
  alignas(16) std::byte source[32] = {};
  const auto copy = [&](int64_t to, int from) {
    simt::copy_async<16>(simt::shared_memory() + to, source + from);
    simt::commit_copies();
    simt::wait_copies<0>();
  };
  expect_failure(
      {.threads = 32, .shared_bytes = 64}, [&] { copy(0, 4); }, "not aligned");
  expect_failure(
      {.threads = 32, .shared_bytes = 64}, [&] { copy(64, 0); }, "outside shared memory");
  expect_failure(
      {.threads = 32, .shared_bytes = 64},
      [&] {
        simt::copy_async<16>(simt::shared_memory(), source);
        simt::commit_copies();
      },
      "before its asynchronous copies had landed");
}

// ---- refusals ----

TEST(Refuse, ADriverOlderThanTheToolkitIsNotAMissingOne) {
  const std::string older = cuda::why_no_gpu(12040, 13000, "CUDA driver version is insufficient");
  EXPECT_NE(older.find("driver here is of CUDA 12.4, older than this build's CUDA 13.0"), std::string::npos);
  EXPECT_NE(older.find("update the driver"), std::string::npos);
  for (const int driver : {0, 13000}) {
    const std::string none = cuda::why_no_gpu(driver, 13000, "no CUDA-capable device is detected");
    EXPECT_NE(none.find("no CUDA-capable device"), std::string::npos);
    EXPECT_NE(none.find("install NVIDIA's driver"), std::string::npos);
  }
}

TEST(Refuse, GridsEndAt65535) {
  EXPECT_NO_THROW(cuda::check_grid(65535, 65535));
  for (const auto& [y, z, what] : {std::tuple{65536, 1, "65536; use a smaller batch"},
                                   std::tuple{1, 70000, "70000; use shorter sequences"}}) {
    try {
      cuda::check_grid(y, z);
      ADD_FAILURE() << what;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  }
}

// ---- the wrappers ----

struct ShimMachine {
  SimtGpu& gpu() { return shim; }
  template <class Kernel, class... In>
  void launch(gpu_check::Grid grid, Kernel kernel, In... in) {
    Machine::run(
        {.grid = {grid.blocks}, .threads = grid.threads, .shared_bytes = grid.shared_bytes, .seed = 1},
        [=] { kernel(static_cast<uint32_t>(simt::block_x() * simt::threads() + simt::thread()), in...); });
  }
  SimtGpu shim;
};

// A GPU does the same, as gpu-check shows there.
TEST(Simt, EveryWrapperDoesWhatItsCommentSays) {
  ShimMachine machine;
  gpu_check::Wrappers<ShimMachine> wrappers(machine);
  for (const auto& check : wrappers.checks()) EXPECT_TRUE(wrappers.passes(check)) << check.name;
}

// Each term loses the bits below the last bit kept, and the sum is truncated, not rounded.
TEST(Simt, TensorCoresCutOffAsMeasured) {
  const auto sum = [](float a, float b, float c) {
    const std::vector<float> x(8, a), y(8, b);
    return simt::add_products(x.data(), y.data(), c);
  };
  const auto power = [](int exponent) { return std::ldexp(1.0f, exponent); };
  EXPECT_EQ(sum(power(-12), power(-12), 1.0f), 1.0f + power(-21));
  EXPECT_EQ(sum(power(-12), 0.75f * power(-12), 1.0f), 1.0f);
  EXPECT_EQ(sum(power(-12), -0.75f * power(-12), 1.0f), 1.0f);
  EXPECT_EQ(sum(1.0f, 1.0f, 0.125f), 8.125f);
  // 1 plus 15 quanta of 2^-24; the last quantum lies below an f32's last bit.
  const std::vector<float> one{1, 0, 0, 0, 0, 0, 0, 0}, small(8, 0.0f);
  EXPECT_EQ(simt::add_products(one.data(), one.data(), 15 * power(-24)), 1.0f + 7 * power(-23));
  EXPECT_EQ(simt::add_products(small.data(), one.data(), -3.0f), -3.0f);
  EXPECT_TRUE(std::isnan(sum(NAN, 1.0f, 0.0f)));
}

// The form for GPUs that do not convert FP8: 256 times too small, which the scale takes back. NaN is no row's code.
TEST(Simt, Fp8IsShiftedIntoBinary16) {
  for (uint32_t code = 0; code < 256; ++code) {
    const uint32_t byte[] = {code, code ^ 0x55u, 255 - code, code ^ 0x80u};
    const uint32_t word = byte[0] | byte[1] << 8 | byte[2] << 16 | byte[3] << 24;
    for (size_t i = 0; i < 2; ++i) {
      const float2 two = simt::unpack_half2(cuda::E4m3::pair(word, static_cast<int>(i), true));
      for (const auto& [is, of] : {std::pair{two.x, byte[i]}, std::pair{two.y, byte[i + 2]}}) {
        if ((of & 0x7fu) == 0x7fu) continue;
        EXPECT_EQ(256.0f * is, fp8_to_f32<kE4M3>(static_cast<uint8_t>(of))) << of;
      }
    }
  }
  const float scale[] = {0x1p119f};  // the largest that a row has
  EXPECT_EQ(cuda::E4m3::scale(reinterpret_cast<const std::byte*>(scale), 0, false).scale, 0x1p127f);
}

}  // namespace
}  // namespace kv
