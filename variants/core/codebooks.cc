#include "variants/core/codebooks.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>

#include "kernels/format/vq.h"
#include "kernels/span.h"
#include "variants/core/codec.h"
#include "variants/core/snapshot.h"

namespace kv {
namespace {

constexpr FileKind kCodebooksFile{"kvlabvqc", "codebooks of vq (`kvlab calibrate` writes them)"};
constexpr size_t kMostNameBytes = 4096;
constexpr int kMostOfEach = 1 << 16, kMostTokens = 1 << 26;

int64_t floats_of(const Codebooks& books) {
  return int64_t{2} * books.layers * books.kv_heads * vq_table_floats(books.codebooks, books.head_dim);
}

// Numbers that make the size of `words`, which is reserved before it is read.
int get_count(Reader& from, int most) {
  const auto count = from.get<int32_t>();
  if (count < 1 || count > most) throw std::invalid_argument("it states a shape that no model has");
  return count;
}

// The last word of each codebook is NaN, and no other is.
void check_words(const std::vector<float>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const bool is_nan_word = i / kVqValues % kVqWords == kVqNanWord;
    if (std::isfinite(words[i]) == is_nan_word)
      throw std::invalid_argument("a word is not finite, or the last one of a codebook is");
  }
}

Codebooks get_codebooks(Reader& from) {
  Codebooks books;
  books.model = from.get_text(kMostNameBytes);
  books.text = from.get_text(kMostNameBytes);
  books.model_crc = from.get<uint32_t>();
  books.text_crc = from.get<uint32_t>();
  for (int64_t* number : {&books.first_token, &books.window}) *number = from.get<int64_t>();
  books.seed = from.get<uint64_t>();
  books.ids.resize(static_cast<size_t>(get_count(from, kMostTokens)));
  from.get(std::span<int32_t>(books.ids));
  books.layers = get_count(from, kMostOfEach);
  books.kv_heads = get_count(from, kMostOfEach);
  books.head_dim = get_count(from, kMaxHeadDim);
  books.codebooks = get_count(from, kVqMostBits);
  const auto floats = from.get<int64_t>();
  if (books.head_dim % kVqValues != 0 || floats != floats_of(books))
    throw std::invalid_argument("its codebooks are not as many as its shape asks for");
  books.words.resize(static_cast<size_t>(floats));
  from.get(std::span<float>(books.words));
  if (!from.at_end()) throw std::invalid_argument("there is more behind its codebooks");
  check_words(books.words);
  return books;
}

std::shared_ptr<const Codebooks> read_file_of_codebooks(const std::string& path) {
  auto books = std::make_shared<Codebooks>();
  read_file(
      path,
      [&](Reader& from) {
        try {
          *books = get_codebooks(from);
        } catch (const std::invalid_argument& e) {
          throw std::invalid_argument("cannot load '" + path + "': " + e.what());
        }
      },
      kCodebooksFile);
  return books;
}

}  // namespace

int64_t Codebooks::table_at(int layer, int kv_head, bool is_v) const {
  return ((int64_t{layer} * kv_heads + kv_head) * 2 + is_v) * vq_table_floats(codebooks, head_dim);
}

std::string Codebooks::of() const {
  return model + ": " + std::to_string(layers) + " layers of " + std::to_string(kv_heads) + " heads of " +
         std::to_string(head_dim);
}

void Codec::require_codebooks() const {
  for (const std::string* absent : {&k_absent, &v_absent}) {
    if (!absent->empty()) read_codebooks(*absent);
  }
}

HeadTables Codec::tables(int layer, int kv_head) const {
  const int own = layers.empty() ? layer : layers[static_cast<size_t>(layer)];
  const auto of = [&](const std::shared_ptr<const Codebooks>& books, bool is_v) {
    const float* words = books ? books->words.data() + books->table_at(own, kv_head, is_v) : nullptr;
    return reinterpret_cast<std::byte*>(const_cast<float*>(words));
  };
  return {of(k_books, false), of(v_books, true)};
}

void write_codebooks(const std::string& path, const Codebooks& books) {
  write_file(
      path,
      [&](Writer& to) {
        to.put_text(books.model);
        to.put_text(books.text);
        to.put(books.model_crc);
        to.put(books.text_crc);
        for (const int64_t number : {books.first_token, books.window}) to.put(number);
        to.put(books.seed);
        to.put(static_cast<int32_t>(books.ids.size()));
        to.put(std::span<const int32_t>(books.ids));
        for (const int32_t number : {books.layers, books.kv_heads, books.head_dim, books.codebooks})
          to.put(number);
        to.put(floats_of(books));
        to.put(std::span<const float>(books.words));
      },
      kCodebooksFile);
}

std::shared_ptr<const Codebooks> read_codebooks(const std::string& path) {
  struct Held {
    std::weak_ptr<const Codebooks> books;
    std::filesystem::file_time_type written;
  };
  static std::mutex mutex;
  static std::map<std::string, Held> all;
  const std::lock_guard lock(mutex);
  std::error_code unreadable;
  const auto written = std::filesystem::last_write_time(path, unreadable);
  Held& held = all[path];
  if (auto books = held.books.lock(); books && !unreadable && held.written == written) return books;
  auto books = read_file_of_codebooks(path);
  held = {books, written};
  return books;
}

}  // namespace kv
