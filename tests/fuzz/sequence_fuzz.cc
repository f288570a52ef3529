// Saved sequences. The first byte chooses the cache; magic, version, identity and a checksum that fits are put around the
// rest, which no input would find by itself.
#include <cstring>
#include <map>
#include <memory>

#include "harness/memory/ledger.h"
#include "tests/fuzz/input_file.h"
#include "variants/cache/cache.h"
#include "variants/core/checksum.h"
#include "variants/core/snapshot.h"

namespace {

constexpr const char* kSpecs[] = {"contiguous",
                                  "paged(block=16)/q8_0",
                                  "doubling/kivi(bits=2)",
                                  "contiguous/h2o(heavy=8,recent=8)",
                                  "contiguous/snapkv(budget=16,window=4)",
                                  "concat/f16/ring(window=8,sinks=2)",
                                  "tiered(hot=16,warm=16)",
                                  "paged/f16/duo(recent=8,sinks=2)"};
constexpr kv::CacheShape kShape{
    .layers = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 32, .max_tokens = 256, .max_sequences = 2};

struct Target {
  explicit Target(const char* spec) : cache(kv::build_cache(kv::parse_spec(spec), kShape, ledger)) {
    cache->save(cache->add_sequence(), file.path());
    std::ifstream saved(file.path(), std::ios::binary);
    head.assign(std::istreambuf_iterator<char>(saved), {});
    constexpr size_t kFixed = 8 + sizeof(uint32_t);  // magic, version
    uint64_t identity;
    std::memcpy(&identity, head.data() + kFixed, sizeof identity);
    head.resize(kFixed + sizeof identity + identity);
  }

  const kv::fuzz::InputFile file{".kvseq"};
  kv::memory::Ledger ledger;
  std::unique_ptr<kv::Cache> cache;
  std::string head;  // all of a saved sequence before its first layer
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static std::map<const char*, Target> targets;
  if (size == 0) return 0;
  const char* spec = kSpecs[data[0] % std::size(kSpecs)];
  Target& target = targets.try_emplace(spec, spec).first->second;
  std::string bytes = target.head + kv::fuzz::bytes_of(data + 1, size - 1);
  const uint32_t sum = kv::extend_crc32c(0, reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  bytes.append(reinterpret_cast<const char*>(&sum), sizeof sum);
  target.file.write(bytes);
  kv::fuzz::parse_or_refuse([&] { target.cache->release(target.cache->load(target.file.path())); });
  return 0;
}
