// Tests of the shim: each barrier, wait and shuffle of the kernels is left out once, and a test must notice each time. It also
// tests the wrappers' definitions, with which `kvlab gpu-check` compares a GPU.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "kernels/cuda/attention/evict.h"
#include "kernels/cuda/attention/read_back.h"
#include "kernels/cuda/attention/words.h"
#include "kernels/cuda/encode/append.h"
#include "kernels/cuda/refuse.h"
#include "tests/kernels/cuda/cuda_attention.h"
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

Experiment decodes(GpuBatch::Find find, const GpuCase& shape) {
  return [=](const Launch& how) {
    std::vector<GpuProblem> problems = make_problems({shape});
    fill_unequally(problems.front());
    GpuBatch batch(problems, GpuBatch::Path::kFast);
    batch.decode(find, how);
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
  expect_lines(unnoticed(decodes(cuda::find_kivi, coded)), expected);
  expect_lines(unnoticed(decodes(cuda::find_plain, long_rows)), expected);
}

// The same barriers go unnoticed here, and those around scales that a warp clears.
TEST(Shim, NoticesEveryLossInChunks) {
  const GpuCase coded{.codec = kivi(4), .rows = 416, .n = 64, .placing = kTiny};
  const GpuCase long_rows{.codec = same(kF16), .head_dim = 256, .rows = 400, .n = 32};
  const std::string counts = "before one of them counts the block",
                    clears = "lanes clear bytes that others copied", cleared = "other lanes' scales";
  expect_lines(unnoticed(decodes(cuda::find_kivi, coded)), {counts, clears, cleared});
  expect_lines(unnoticed(decodes(cuda::find_plain, long_rows)), {counts});
}

TEST(Shim, NoticesEveryLossInThePlainKernelAndTheMerge) {
  EXPECT_TRUE(unnoticed([](const Launch& how) {
                std::vector<GpuProblem> problems = make_problems({{.codec = same(kF16), .rows = 70}});
                GpuBatch batch(problems);
                batch.attend_simple(how);
                batch.merge(1);
                return problems.front().relative_error() < 3e-6;
              }).empty());
}

TEST(Shim, NoticesEveryLossInAppend) {
  for (const Encoding& e : {kFp8s[0], kQ8, kQ4, token(4, true)}) {
    const auto lost = unnoticed([&](const Launch& how) {
      auto rows = gaussian(16 * 64, 1);
      for (float& x : rows) x += 5.0f;
      rows[3 * 64 + 9] = INFINITY;
      PagedHead gpu(same(e), 64, kContiguous, 16), cpu(same(e), 64, kContiguous, 16);
      const auto* from = reinterpret_cast<const std::byte*>(rows.data());
      const cuda::AppendJob job{from, from, gpu.pages.data(), nullptr, 0, 16};
      Launch launch = how;
      launch.grid = {cuda::append_blocks(gpu.layout, 16)};
      launch.threads = cuda::kAppendWarps * simt::kWarp;
      Machine::run(launch, [&] { cuda::append_rows({gpu.layout, &job, false}); });
      cpu.fill(rows, rows);
      return difference(gpu, cpu).empty();
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

// The definition in simt/device.h, with operands assembled by hand: whole numbers times `of_a` and `of_b`.
template <class Multiply, class Narrow>
void expect_product(Multiply multiply, Narrow narrow, float of_a = 1.0f, float of_b = 1.0f) {
  std::vector<float> a(16 * 16), b(16 * 8), c(16 * 8, 1.0f);
  std::mt19937 random(1);
  for (float& x : a) x = of_a * static_cast<float>(static_cast<int>(random() % 17) - 8);
  for (float& x : b) x = of_b * static_cast<float>(static_cast<int>(random() % 17) - 8);
  const auto pair = [&](float low, float high) { return narrow(low) | uint32_t{narrow(high)} << 16; };
  Machine::run({.threads = 32, .seed = 1}, [&] {
    const size_t g = static_cast<size_t>(simt::lane()) / 4, t = static_cast<size_t>(simt::lane()) % 4;
    uint32_t x[4], y[2];
    for (size_t i = 0; i < 4; ++i) {
      const size_t at = (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
      x[i] = pair(a[at], a[at + 1]);
    }
    for (size_t i = 0; i < 2; ++i) y[i] = pair(b[(2 * t + 8 * i) * 8 + g], b[(2 * t + 8 * i + 1) * 8 + g]);
    float sum[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    multiply(x, y, sum);
    for (size_t i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
  });
  for (size_t row = 0; row < 16; ++row) {
    for (size_t column = 0; column < 8; ++column) {
      float want = 1.0f;
      for (size_t k = 0; k < 16; ++k) want += a[row * 16 + k] * b[k * 8 + column];
      EXPECT_EQ(c[row * 8 + column], want) << row << " " << column;
    }
  }
}

TEST(Simt, TilesMultiplyAsMatricesDo) {
  expect_product(simt::multiply_half_tiles, f32_to_f16);
  expect_product(simt::multiply_half_tiles, f32_to_f16, 0x1p11f, 0x1p-24f);  // subnormal, as codes of K are
  expect_product(simt::multiply_bfloat_tiles, f32_to_bf16);
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

TEST(Simt, MatricesLoadByRowsOrTransposed) {
  alignas(16) uint16_t half[32][8];
  for (int i = 0; i < 32 * 8; ++i) half[i / 8][i % 8] = static_cast<uint16_t>(257 * i + 3);
  uint32_t words[2][32][4];
  Machine::run({.threads = 32, .seed = 1}, [&] {
    const int lane = simt::lane();
    const auto* own_row = reinterpret_cast<const std::byte*>(half[31 - lane]);
    simt::load_matrices<false>(own_row, words[0][lane]);
    simt::load_matrices<true>(own_row, words[1][lane]);
  });
  const auto at = [&](int matrix, int row, int column) {
    return uint32_t{half[31 - (8 * matrix + row)][column]};
  };
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int m = 0; m < 4; ++m) {
      EXPECT_EQ(words[0][lane][m], at(m, g, 2 * t) | at(m, g, 2 * t + 1) << 16);
      EXPECT_EQ(words[1][lane][m], at(m, 2 * t, g) | at(m, 2 * t + 1, g) << 16);
    }
  }
}

TEST(Simt, AWarpVotesForItself) {
  uint32_t largest[64], votes = 0, ones = 0;
  float4 four[64];
  alignas(16) const float numbers[] = {1.0f, 2.0f, 3.0f, 4.0f};
  Machine::run({.threads = 64, .seed = 1}, [&] {
    const auto i = static_cast<uint32_t>(simt::thread());
    largest[i] = simt::largest_of_warp(i == 0 || i == 63 ? 0x80000001u : i);
    votes += simt::any(i == 31);
    ones += simt::read_fresh(numbers) == 1.0f;
    four[i] = simt::read_fresh4(numbers);
  });
  for (const uint32_t one : largest) EXPECT_EQ(one, 0x80000001u);
  for (const float4& one : four)
    EXPECT_TRUE(one.x == 1.0f && one.y == 2.0f && one.z == 3.0f && one.w == 4.0f);
  EXPECT_EQ(votes, 32u);  // of the first warp alone
  EXPECT_EQ(ones, 64u);
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

TEST(Simt, BytesArePickedByNibbles) {
  EXPECT_EQ(simt::permute_bytes(0x33221100u, 0x77665544u, 0x7520u), 0x77552200u);
}

}  // namespace
}  // namespace kv
