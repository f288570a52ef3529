// Saved sequences: what a file must survive, and what must be refused. That they resume exactly is cache_machine_test's.
#include "variants/core/snapshot.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "tests/harness/io/full_disk.h"
#include "tests/message_of.h"
#include "tests/temp.h"
#include "tests/variants/contract.h"
#include "variants/core/checksum.h"

namespace kv::snapshot_test {
namespace {

using namespace contract;

constexpr CacheShape kShape{
    .layers = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 8, .max_tokens = 64, .max_sequences = 2};

uint32_t crc(std::string_view text) {
  return extend_crc32c(0, reinterpret_cast<const std::byte*>(text.data()), text.size());
}

// Check values of RFC 3720, appendix B.4, and of the CRC catalogues.
TEST(Checksum, EqualsThePublishedValues) {
  EXPECT_EQ(crc("123456789"), 0xe3069283u);
  EXPECT_EQ(crc(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc(""), 0u);
}

TEST(Checksum, DoesNotDependOnWhereItIsCut) {
  const std::string text = "the quick brown fox jumps over the lazy dog";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    EXPECT_EQ(extend_crc32c(extend_crc32c(0, data, cut), data + cut, text.size() - cut), crc(text));
  }
}

class OtherRoom : public testing::TestWithParam<const char*> {};
class LyingFile : public testing::TestWithParam<const char*> {};

class SavedFile : public testing::Test {
 protected:
  void SetUp() override {
    cache_ = build_cache(parse_spec("contiguous"), kShape, ledger_);
    id_ = cache_->add_sequence();
    drive(*cache_, id_, make_tokens(kShape, 3, 1), std::vector<int64_t>{3});
    cache_->save(id_, path_);
    std::ifstream file(path_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }

  // The message with which a file of these bytes is refused.
  std::string error_of(const std::string& bytes) {
    std::filesystem::remove(path_);  // some file systems sync a file that is cut and written again
    std::ofstream(path_, std::ios::binary) << bytes;
    return message_of([&] { cache_->load(path_); });
  }
  int64_t files() const {
    return std::distance(std::filesystem::directory_iterator(folder_.path()),
                         std::filesystem::directory_iterator());
  }

  const test::TempFolder folder_;
  const std::string path_ = folder_ / "sequence.kv";
  memory::Ledger ledger_;
  std::unique_ptr<Cache> cache_;
  SequenceId id_ = -1;
  std::string bytes_;
};

TEST_F(SavedFile, GrowsWithWhatIsKeptAndNoFaster) {
  const int64_t row = 2 * 8 * 4;
  const auto size = [&] { return static_cast<int64_t>(std::filesystem::file_size(path_)); };
  const int64_t fixed = size() - 3 * row;
  EXPECT_LT(fixed, 200);
  drive(*cache_, id_, make_tokens(kShape, 40, 1), std::vector<int64_t>{40});
  cache_->save(id_, path_);
  EXPECT_EQ(size(), fixed + 43 * row);
  EXPECT_EQ(files(), 1) << "a passing name is left over";
}

TEST_F(SavedFile, IsRefusedWhenCutAnywhere) {
  for (size_t n = 0; n < bytes_.size(); ++n) EXPECT_NE(error_of(bytes_.substr(0, n)), "") << n << " bytes";
  EXPECT_NE(error_of(bytes_ + '\0'), "") << "one byte too many";
  EXPECT_EQ(error_of(bytes_), "");
}

TEST_F(SavedFile, IsRefusedWhenAnyByteHasChanged) {
  for (size_t i = 0; i < bytes_.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string changed = bytes_;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      EXPECT_NE(error_of(changed), "") << "byte " << i;
    }
  }
}

// The bytes with a checksum that is right for them.
std::string sealed(std::string bytes) {
  const uint32_t sum = crc(std::string_view(bytes).substr(0, bytes.size() - sizeof(uint32_t)));
  std::memcpy(bytes.data() + bytes.size() - sizeof sum, &sum, sizeof sum);
  return bytes;
}

// Whatever a file says whose checksum is right, it is refused, or gives a sequence that can be used. Each of its bytes
// is changed, and eight at a time become numbers that are far off; the sanitizers watch what is read and written.
TEST_P(LyingFile, IsRefusedOrHarmless) {
  const int64_t n = std::string(GetParam()).starts_with("tiered") ? 1200 : 40;
  const CacheShape shape{
      .layers = 2, .q_heads = 2, .kv_heads = 1, .head_dim = 32, .max_tokens = n + 100, .max_sequences = 3};
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec(GetParam()), shape, ledger);
  const SequenceId id = cache->add_sequence();
  drive(*cache, id, make_tokens(shape, n + 2, 1), std::vector<int64_t>{n, 1, 1});
  const std::string path = passing_path("lying");
  cache->save(id, path);
  std::string bytes;
  {
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  const int64_t before = held_bytes(ledger);
  const Tokens next = make_tokens(shape, 1, 2);
  int refused = 0, tried = 0;
  const auto load = [&](const std::string& changed) {
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << sealed(changed);
    ++tried;
    const std::string said = message_of([&] {
      const SequenceId loaded = cache->load(path);
      if (cache->tokens(loaded, 0) < shape.max_tokens) drive(*cache, loaded, next, std::vector<int64_t>{1});
      cache->release(loaded);
    });
    refused += !said.empty();
    EXPECT_TRUE(said.empty() || said.starts_with("cannot load '")) << said;
    EXPECT_EQ(held_bytes(ledger), before);
  };
  // Beyond this many bytes come rows, any of which may be.
  const size_t most = std::min<size_t>(bytes.size() - 12, 400);
  for (size_t i = 0; i < most; ++i) {
    for (const int flip : {0x01, 0x80}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      load(changed);
    }
    for (const int64_t number :
         {int64_t{-1}, int64_t{1} << 40, std::numeric_limits<int64_t>::max(), shape.max_tokens}) {
      std::string changed = bytes;
      std::memcpy(changed.data() + i, &number, sizeof number);
      load(changed);
    }
  }
  load(bytes + std::string(8, '\0'));
  EXPECT_GT(refused, tried / 4);
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(
    Snapshot, LyingFile,
    testing::Values("contiguous", "contiguous/q8_0", "concat/f16", "doubling", "segmented", "paged",
                    "paged(block=32)/kivi", "contiguous/kivi(bits=2)", "contiguous/token(bits=4)",
                    "tiered(hot=256,warm=256)", "tiered(hot=256,warm=256)/q8_0",
                    "contiguous/f32/ring(window=24,sinks=4)", "contiguous/f32/h2o(heavy=16,recent=8)",
                    "contiguous/f32/tova(budget=24)", "contiguous/f32/knorm(budget=24)",
                    "contiguous/f32/random(budget=24)", "paged/f32/snapkv(budget=24,window=8)",
                    "paged/f32/duo(recent=20,sinks=4)", "concat/f32/duo(recent=20,sinks=4,retrieval=0.01)"));

TEST_F(SavedFile, ARefusedOneChangesNothing) {
  const int64_t held = ledger_.payload().current_bytes;
  const std::string error = error_of(bytes_.substr(0, bytes_.size() - 1));
  EXPECT_EQ(error, "cannot load '" + path_ + "': it is damaged or cut short (its checksum does not match)");
  EXPECT_EQ(ledger_.payload().current_bytes, held);
  EXPECT_EQ(cache_->tokens(id_, 0), 3);
}

TEST_F(SavedFile, OfAnotherSpecOrShapeIsRefusedWithBothNamed) {
  memory::Ledger ledger;
  const auto error = [&](const char* spec, const CacheShape& shape) {
    return message_of([&] { build_cache(parse_spec(spec), shape, ledger)->load(path_); });
  };
  CacheShape wider = kShape;
  wider.head_dim = 16;
  EXPECT_EQ(
      error("doubling", kShape),
      "cannot load '" + path_ +
          "': it holds a sequence of contiguous with 1 layers, 1 query heads, 1 kv heads, head_dim 8; this "
          "cache is doubling with 1 layers, 1 query heads, 1 kv heads, head_dim 8");
  EXPECT_NE(error("contiguous/f16", kShape), "");
  EXPECT_NE(error("contiguous", wider), "");
}

// Prefill in a short cache, decode in a long one, and back as long as the sequence fits.
TEST_P(OtherRoom, TakesASequenceUpBitForBit) {
  const auto shape = [](int64_t max_tokens, int max_sequences) {
    return CacheShape{.layers = 2,
                      .q_heads = 2,
                      .kv_heads = 1,
                      .head_dim = 32,
                      .max_tokens = max_tokens,
                      .max_sequences = max_sequences};
  };
  const std::string path = passing_path("room");
  memory::Ledger ledger;
  const auto in = [&](int64_t max_tokens, int max_sequences) {
    return build_cache(parse_spec(GetParam()), shape(max_tokens, max_sequences), ledger);
  };
  const auto small = in(100, 1), large = in(900, 5), same = in(96, 2), less = in(95, 5);
  const Tokens all = make_tokens(shape(1, 1), 200, 1);
  const auto step = [&](Cache& cache, SequenceId id, int64_t first, int64_t n) {
    drive(cache, id, slice(cache.shape(), all, first, n), {&n, 1}, 0);
    return drive(cache, id, slice(cache.shape(), all, first, n), {&n, 1}, 1);
  };
  const SequenceId first = small->add_sequence(), whole = large->add_sequence();
  for (const auto& [cache, id] : {std::pair{small.get(), first}, std::pair{large.get(), whole}}) {
    step(*cache, id, 0, 90);
    for (int64_t t = 90; t < 96; ++t) step(*cache, id, t, 1);
  }
  small->save(first, path);
  const SequenceId loaded = large->load(path), restored = large->restore(small->snapshot(first));
  for (int64_t t = 96; t < 200; ++t) {
    const auto out = step(*large, whole, t, 1);
    ASSERT_EQ(step(*large, loaded, t, 1), out) << t;
    ASSERT_EQ(step(*large, restored, t, 1), out) << t;
  }
  EXPECT_EQ(same->tokens(same->load(path), 1), 96);
  EXPECT_EQ(message_of([&] { less->load(path); }),
            "cannot load '" + path + "': it holds a sequence of 96 tokens; this cache takes up to 95");
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(
    Snapshot, OtherRoom,
    testing::Values("contiguous", "concat", "doubling/q8_0", "segmented(rows=32)", "paged",
                    "paged(block=32)/kivi", "contiguous/token(bits=4)", "tiered(hot=10,warm=16)",
                    "contiguous/f32/ring(window=24,sinks=4)", "contiguous/f32/ring(window=500)",
                    "contiguous/f32/h2o(heavy=16,recent=8)", "contiguous/f32/h2o(heavy=200,recent=200)",
                    "contiguous/f32/tova(budget=24)", "contiguous/f32/tova(budget=100)",
                    "contiguous/f32/tova(budget=98)", "contiguous/f32/knorm(budget=24)",
                    "contiguous/f32/random(budget=150)", "paged/f32/snapkv(budget=24,window=8)",
                    "paged/f32/snapkv(budget=300,window=8)"));

// A share of max_tokens is another number of rows there, and a pool's size is none of a sequence's.
TEST_F(SavedFile, KnowsItsBudgetInRows) {
  CacheShape longer = kShape;
  longer.max_tokens = 128;
  memory::Ledger ledger;
  const auto load = [&](const char* from, const char* to) {
    const auto cache = build_cache(parse_spec(from), kShape, ledger);
    cache->save(cache->add_sequence(), path_);
    return message_of([&] { build_cache(parse_spec(to), longer, ledger)->load(path_); });
  };
  EXPECT_EQ(load("contiguous/f32/ring(window=0.5)", "contiguous/f32/ring(window=0.25)"), "");
  EXPECT_EQ(load("contiguous/f32/ring(window=0.5)", "contiguous/f32/ring(window=32)"), "");
  EXPECT_NE(
      load("contiguous/f32/ring(window=0.5)", "contiguous/f32/ring(window=0.5)").find("ring(window=32)"),
      std::string::npos);
  EXPECT_EQ(load("paged(pool=8)", "paged(pool=40)"), "");
}

TEST_F(SavedFile, MustExist) {
  EXPECT_THROW(cache_->load(folder_ / "none"), std::invalid_argument);
  EXPECT_THROW(cache_->save(id_, folder_ / "none/sequence.kv"), std::runtime_error);
}

TEST_F(SavedFile, ThatDoesNotFitLeavesNoFileAndTheOldOneWhole) {
  {
    const test::FullDisk full(100);
    EXPECT_THROW(cache_->save(id_, path_), std::runtime_error);
  }
  EXPECT_EQ(files(), 1);
  EXPECT_EQ(error_of(bytes_), "");
  EXPECT_EQ(cache_->tokens(id_, 0), 3);
}

TEST(Snapshot, IsCountedAndOutlivesItsSequence) {
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec("concat"), kShape, ledger);
  const SequenceId id = cache->add_sequence();
  drive(*cache, id, make_tokens(kShape, 20, 1), std::vector<int64_t>{20});
  const auto k = read_back(*cache, id, 0, 0).k;
  {
    const Snapshot snapshot = cache->snapshot(id);
    cache->release(id);
    EXPECT_EQ(ledger.payload().current_bytes, static_cast<int64_t>(snapshot.bytes()));
    EXPECT_EQ(read_back(*cache, cache->restore(snapshot), 0, 0).k, k);
  }
  EXPECT_EQ(ledger.payload().current_bytes, 20 * 2 * 8 * 4);
}

}  // namespace
}  // namespace kv::snapshot_test
