#include "kernels/format/vq.h"

#include <array>
#include <cmath>
#include <limits>

#include "kernels/format/quantise.h"

namespace kv {
namespace {

// The mean magnitude of N(0,1), and that of what the first codebook leaves.
constexpr float kMagnitudes[kVqMostBits] = {0.797884561f, 0.4826f};

using SharedBooks = std::array<std::array<float, kVqBookFloats>, kVqMostBits>;

SharedBooks make_shared_books() {
  SharedBooks books{};
  for (size_t book = 0; book < books.size(); ++book) {
    for (int i = 0; i < kVqBookFloats; ++i) {
      const int word = i / kVqValues;
      const float magnitude = word == kVqNanWord ? std::bit_cast<float>(kNanBits) : kMagnitudes[book];
      books[book][static_cast<size_t>(i)] = word >> (i % kVqValues) & 1 ? -magnitude : magnitude;
    }
  }
  return books;
}

// The words of one codebook for one group of values.
class Books {
 public:
  Books(const Encoding& e, int head_dim, const std::byte* meta)
      : learned_(e.second ? reinterpret_cast<const float*>(meta) : nullptr), groups_(head_dim / kVqValues) {}
  const float* words(int book, int group) const {
    static const SharedBooks shared = make_shared_books();
    if (!learned_) return shared[static_cast<size_t>(book)].data();
    return learned_ + (int64_t{book} * groups_ + group) * kVqBookFloats;
  }
  int groups() const { return groups_; }

 private:
  const float* learned_;
  int groups_;
};

// In an order of its own, which vectors of four can follow.
float squared_distance(const float* a, const float* b) {
  float part[4];
  for (int i = 0; i < 4; ++i) {
    const float low = a[i] - b[i], high = a[i + 4] - b[i + 4];
    part[i] = low * low + high * high;
  }
  return (part[0] + part[2]) + (part[1] + part[3]);
}

bool all_finite(const float* x) {
  bool finite = true;
  for (int i = 0; i < kVqValues; ++i) finite &= std::isfinite(x[i]);
  return finite;
}

}  // namespace

int nearest_word(const float* words, const float* x) {
  int nearest = 0;
  float least = std::numeric_limits<float>::infinity();
  for (int word = 0; word < kVqNanWord; ++word) {
    const float distance = squared_distance(x, words + word * kVqValues);
    if (distance >= least) continue;
    least = distance;
    nearest = word;
  }
  return nearest;
}

void VqFormat::encode(const Encoding& e, int n, const float* row, std::byte* data, std::byte* meta) {
  const Books books(e, n, meta);
  for (int group = 0; group < books.groups(); ++group) {
    float left[kVqValues];
    for (int i = 0; i < kVqValues; ++i) left[i] = row[group * kVqValues + i];
    const bool finite = all_finite(left);
    for (int book = 0; book < e.bits; ++book) {
      const float* words = books.words(book, group);
      const int word = finite ? nearest_word(words, left) : kVqNanWord;
      store(data, book * books.groups() + group, static_cast<uint8_t>(word));
      for (int i = 0; i < kVqValues; ++i) left[i] -= words[word * kVqValues + i];
    }
  }
}

void VqFormat::decode(const Encoding& e, int n, const std::byte* data, const std::byte* meta, int, int,
                      float* out) {
  const Books books(e, n, meta);
  for (int group = 0; group < books.groups(); ++group) {
    float* to = out + group * kVqValues;
    for (int book = 0; book < e.bits; ++book) {
      const int word = load<uint8_t>(data, book * books.groups() + group);
      const float* from = books.words(book, group) + word * kVqValues;
      for (int i = 0; i < kVqValues; ++i) to[i] = book == 0 ? from[i] : to[i] + from[i];
    }
  }
}

}  // namespace kv
