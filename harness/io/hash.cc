#include "harness/io/hash.h"

#include <fstream>
#include <stdexcept>
#include <vector>

#include "harness/io/text.h"

namespace kv::io {
namespace {

constexpr uint64_t kOffset = 14695981039346656037u, kPrime = 1099511628211u;

uint64_t hashed_on(uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return hash;
}

}  // namespace

uint64_t hash(std::string_view text) { return hashed_on(kOffset, text); }

uint64_t hash_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> block(size_t{1} << 16);
  uint64_t hash = kOffset;
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    hash = hashed_on(hash, {block.data(), static_cast<size_t>(file.gcount())});
  }
  if (!file.eof()) throw std::runtime_error("cannot read " + path.string());
  return hash;
}

std::string hash_text(uint64_t hash) { return formatted("%016llx", static_cast<unsigned long long>(hash)); }

}  // namespace kv::io
