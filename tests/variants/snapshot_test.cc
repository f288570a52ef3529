// Saved sequences: what a file must survive, and what must be refused. That they resume exactly is part of
// the contract of every cache (contract_test.cc).
#include "variants/core/snapshot.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/variants/contract.h"
#include "variants/core/checksum.h"

namespace kv {
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

class SavedFile : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    cache_ = build_cache(parse_spec("contiguous"), kShape, ledger_);
    id_ = cache_->add_sequence();
    drive(*cache_, id_, make_tokens(kShape, 3, 1), std::vector<int64_t>{3});
    cache_->save(id_, path_);
    std::ifstream file(path_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // The message with which a file of these bytes is refused.
  std::string error_of(const std::string& bytes) {
    std::filesystem::remove(path_);  // some file systems sync a file that is cut and written again
    std::ofstream(path_, std::ios::binary) << bytes;
    try {
      cache_->load(path_);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "none";
  }
  int64_t files() const {
    return std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator());
  }

  const std::string folder_ = passing_path("snapshot");
  const std::string path_ = folder_ + "/sequence.kv";
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
  for (size_t n = 0; n < bytes_.size(); ++n)
    EXPECT_NE(error_of(bytes_.substr(0, n)), "none") << n << " bytes";
  EXPECT_NE(error_of(bytes_ + '\0'), "none") << "one byte too many";
  EXPECT_EQ(error_of(bytes_), "none");
}

TEST_F(SavedFile, IsRefusedWhenAnyByteHasChanged) {
  for (size_t i = 0; i < bytes_.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string changed = bytes_;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      EXPECT_NE(error_of(changed), "none") << "byte " << i;
    }
  }
}

TEST_F(SavedFile, ARefusedOneChangesNothing) {
  const int64_t held = ledger_.payload().current_bytes;
  const std::string error = error_of(bytes_.substr(0, bytes_.size() - 1));
  EXPECT_EQ(error, "cannot load '" + path_ + "': it is damaged or cut short (its checksum does not match)");
  EXPECT_EQ(ledger_.payload().current_bytes, held);
  EXPECT_EQ(cache_->tokens(id_, 0), 3);
}

TEST_F(SavedFile, OfAnotherSpecOrShapeIsRefusedWithBothNamed) {
  memory::Ledger ledger;
  const auto error = [&](const char* spec, const CacheShape& shape) -> std::string {
    try {
      build_cache(parse_spec(spec), shape, ledger)->load(path_);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "none";
  };
  CacheShape longer = kShape, more = kShape;
  longer.max_tokens = 65;
  more.max_sequences = 7;
  EXPECT_EQ(error("doubling", kShape),
            "cannot load '" + path_ +
                "': it holds a sequence of contiguous with 1 layers, 1 query heads, 1 kv heads, head_dim 8, "
                "max_tokens 64; this cache is doubling with 1 layers, 1 query heads, 1 kv heads, head_dim 8, "
                "max_tokens 64");
  EXPECT_NE(error("contiguous/f16", kShape), "none");
  EXPECT_NE(error("contiguous", longer), "none");
  EXPECT_EQ(error("contiguous", more), "none") << "the number of sequences is no part of a sequence";
}

TEST_F(SavedFile, MustExist) {
  EXPECT_THROW(cache_->load(folder_ + "/none"), std::invalid_argument);
  EXPECT_THROW(cache_->save(id_, folder_ + "/none/sequence.kv"), std::runtime_error);
}

// A limit on the size of files stands in for a full disk.
TEST_F(SavedFile, ThatDoesNotFitLeavesNoFileAndTheOldOneWhole) {
  rlimit old;
  getrlimit(RLIMIT_FSIZE, &old);
  const auto ignore = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(cache_->save(id_, path_), std::runtime_error);
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, ignore);
  EXPECT_EQ(files(), 1);
  EXPECT_EQ(error_of(bytes_), "none");
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
}  // namespace kv
