// tiered beyond the contract, at lengths where rows have gone to the second pool and to the file.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "kernels/format/encoding.h"
#include "tests/harness/io/full_disk.h"
#include "tests/message_of.h"
#include "tests/temp.h"
#include "tests/variants/contract.h"

namespace kv {
namespace {

using namespace contract;

constexpr CacheShape kShape{
    .layers = 1, .q_heads = 4, .kv_heads = 2, .head_dim = 32, .max_tokens = 3000, .max_sequences = 3};

class Tiered : public testing::Test {
 protected:
  // At 1700 tokens: 2 chunks in the file, 1 warm, 1 hot.
  Spec spec(const std::string& codec = "f32", const std::string& settings = "hot=100,warm=400") const {
    return parse_spec("tiered(" + settings + ",dir=" + folder_ + ")/" + codec);
  }

  const test::TempFolder temp_;
  const std::string folder_ = temp_.path().string();
  memory::Ledger ledger_;
  const Tokens all_ = make_tokens(kShape, 2000, 1);
};

// The closed form of what a step reads, against the spans' own sizes, the ledger's tiers and its count of reads.
TEST_F(Tiered, ReadsWhatTheClosedFormSays) {
  for (const char* codec : {"f32", "q8_0", "kivi(residual=64)", "split(k=f16,v=token)"}) {
    memory::Ledger ledger;
    const auto cache = build_cache(spec(codec), kShape, ledger);
    const SequenceId id = cache->add_sequence();
    for (int64_t n = 0; n < 2000;) {
      const int64_t more = n < 1500 ? 250 : 100;
      fill(*cache, id, all_, n, more);
      n += more;
      TierBytes read;
      const auto add = [&](const Side& side, int64_t rows) {
        const int64_t units = (rows + side.encoding.group - 1) / side.encoding.group;
        (ledger.tier_at(side.data) == Tier::kWarm ? read.warm : read.hot) +=
            units * (unit_data_bytes(side.encoding, 32) + unit_meta_bytes(side.encoding, 32));
      };
      for (int head = 0; head < kShape.kv_heads; ++head) {
        for (const Span& span : cache->resident_spans(id, 0, head)) {
          add(span.k, span.rows);
          add(span.v, span.rows);
        }
      }
      const int64_t before = ledger.disk_reads().bytes;
      std::vector<float> q(4 * 32, 0.5f), out(q.size());
      const StepInput input{.sequence = id, .n = 1, .q = q.data(), .out = out.data()};
      cache->view(0, {&input, 1});
      cache->attend(0, {&input, 1});
      read.disk = ledger.disk_reads().bytes - before;
      EXPECT_EQ(read, predicted_reads(spec(codec), kShape, {&n, 1})) << codec << " " << n;
    }
  }
}

// sleep_until never returns early, so a rate is an upper bound on any machine.
TEST_F(Tiered, ALinkIsNoFasterThanItsRate) {
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec("tiered(hot=1,warm=0,link_gbps=0.05)"), kShape, ledger);
  fill(*cache, cache->add_sequence(), all_, 0, 1700);
  const auto read = ledger.disk_reads();
  ASSERT_GT(read.bytes, 0);
  EXPECT_GE(read.seconds, static_cast<double>(read.bytes) / 0.05e9);
  EXPECT_LE(read.waited, 10 * read.seconds);
}

TEST_F(Tiered, AFileIsNotLoadedIntoMemoryWhole) {
  const std::string path = folder_ + "/saved.kv";
  const auto cache = build_cache(spec(), kShape, ledger_);
  const SequenceId id = cache->add_sequence();
  fill(*cache, id, all_, 0, 1900);
  cache->save(id, path);
  memory::Ledger other;
  build_cache(spec(), kShape, other)->load(path);
  EXPECT_LE(other.payload().peak_bytes, ledger_.payload().peak_bytes);
}

// Nothing has a name while it is in use, so nothing can be left over, however the program ends.
TEST_F(Tiered, ItsFileHasNoName) {
  const auto cache = build_cache(spec(), kShape, ledger_);
  fill(*cache, cache->add_sequence(), all_, 0, 1700);
  EXPECT_GT(ledger_.disk().current_bytes, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Tiered, AFullDiskRefusesTheAppendAndLosesNothing) {
  const auto cache = build_cache(spec(), kShape, ledger_);
  const SequenceId id = cache->add_sequence();
  const int64_t n = 1011;  // the next token but one sends the first chunk to the file
  fill(*cache, id, all_, 0, n);
  {
    const test::FullDisk full(4096);
    EXPECT_EQ(message_of<std::runtime_error>([&] { step(*cache, id, all_, n, 1); }),
              "no room for 262144 more bytes in '" + folder_ + "': File too large");
  }
  EXPECT_EQ(cache->tokens(id, 0), n);
  EXPECT_EQ(ledger_.disk().current_bytes, 0);
  // With room again it goes on as if nothing had been.
  const auto out = drive(*cache, id, slice(kShape, all_, n, 200), ones(200));
  memory::Ledger plain;
  const auto alone = build_cache(parse_spec("contiguous"), kShape, plain);
  const SequenceId same = alone->add_sequence();
  fill(*alone, same, all_, 0, n);
  EXPECT_EQ(drive(*alone, same, slice(kShape, all_, n, 200), ones(200)), out);
}

// The nameless file of this process that lies in `folder`, opened anew.
std::string open_file_in(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry, gone);
    if (!gone && target.string().starts_with(folder)) return entry.path();
  }
  return "";
}

TEST_F(Tiered, AFileThatWasCutIsAClearError) {
  const auto cache = build_cache(spec(), kShape, ledger_);
  const SequenceId id = cache->add_sequence(), short_one = cache->add_sequence();
  const int64_t n = 1700;
  fill(*cache, id, all_, 0, n);
  const std::string file = open_file_in(std::filesystem::canonical(folder_));
  ASSERT_FALSE(file.empty());
  std::filesystem::resize_file(file, 5000);
  EXPECT_EQ(message_of<std::runtime_error>([&] { step(*cache, id, all_, n, 1); }),
            "the file in '" + folder_ + "' is shorter than what was written to it");
  drive(*cache, short_one, slice(kShape, all_, 0, 100), ones(100));  // the others are not touched by it
  EXPECT_EQ(cache->tokens(short_one, 0), 100);
}

// Address 0 is no process's memory, and reading it there an I/O error, as a disk would have it.
TEST_F(Tiered, AnIoErrorIsAClearErrorAndLosesNothing) {
  const auto cache = build_cache(spec(), kShape, ledger_);
  const SequenceId id = cache->add_sequence();
  const int64_t n = 1700;
  fill(*cache, id, all_, 0, n);
  const std::string file = open_file_in(std::filesystem::canonical(folder_));
  ASSERT_FALSE(file.empty());
  const int fd = std::stoi(std::filesystem::path(file).filename());
  const int kept = dup(fd), broken = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(broken, 0);
  dup2(broken, fd);
  EXPECT_EQ(message_of<std::runtime_error>([&] { step(*cache, id, all_, n, 1); }),
            "cannot read rows from the file in '" + folder_ + "': Input/output error");
  dup2(kept, fd);
  close(kept);
  close(broken);
  memory::Ledger plain;
  const auto alone = build_cache(parse_spec("contiguous"), kShape, plain);
  const SequenceId same = alone->add_sequence();
  const int64_t more = cache->tokens(id, 0);
  fill(*alone, same, all_, 0, more);
  const Tokens rest = slice(kShape, all_, more, 20);
  EXPECT_EQ(drive(*cache, id, rest, ones(20)), drive(*alone, same, rest, ones(20)));
}

TEST_F(Tiered, AFolderThatIsDeletedKeepsItsFileUntilTheEnd) {
  const auto cache = build_cache(spec(), kShape, ledger_);
  const SequenceId id = cache->add_sequence();
  const int64_t n = 1700;
  fill(*cache, id, all_, 0, n);
  std::filesystem::remove_all(folder_);
  drive(*cache, id, slice(kShape, all_, n, 300), ones(300));
  EXPECT_EQ(cache->tokens(id, 0), 2000);
  EXPECT_EQ(unsupported_reason(spec()),
            "cannot make a temporary file in '" + folder_ + "': No such file or directory");
}

TEST_F(Tiered, IsRefusedWhereItCannotWork) {
  EXPECT_EQ(unsupported_reason(parse_spec("tiered(dir=/no/such/folder)")),
            "cannot make a temporary file in '/no/such/folder': No such file or directory");
  EXPECT_EQ(unsupported_reason(parse_spec("tiered/ring")),
            "retention 'ring' puts a new token's row where a dropped one's was, and a tier is chosen by age: "
            "new rows "
            "would lie in the file");
  const Codec grouped{
      .k = {.format = Format::kChannel, .bits = 4, .group = 48}, .v = {}, .k_error = {}, .v_error = {}};
  const Spec plain = parse_spec("tiered");
  EXPECT_NE(placement_of(plain).refuses(plain.placement, grouped, retention_of(plain)), "");
}

}  // namespace
}  // namespace kv
