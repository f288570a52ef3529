// llama2.c's tokenizer.bin and its greedy BPE.
//
// llama2.c scans the whole text for the best pair again after every merge, O(n²). Here the candidate pairs
// wait in a heap (as in SentencePiece): the same merges in the same order, O(n log n). The pairs of ids that make a
// third are found once, when the file is read, so that encoding handles no strings.
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <queue>
#include <stdexcept>
#include <unordered_map>

#include "harness/io/mapped_file.h"
#include "harness/model/model.h"

static_assert(std::endian::native == std::endian::little, "llama2.c files are read as they lie in memory");

namespace kv::model {
namespace {

constexpr int kFirstOrdinary = Tokenizer::kEos + 1;  // the control pieces before it never come out of text
constexpr int kBytePieces = 256;                     // from kFirstOrdinary on, where the file has them

struct Piece {
  float score;
  std::string text;
};

// Reads a tokenizer file from front to back; every error names the file, the piece and the bytes.
class PieceReader {
 public:
  PieceReader(const io::MappedFile& file, int vocab_size) : file_(file), vocab_size_(vocab_size) {}

  std::vector<Piece> read() {
    max_length_ = take<uint32_t>("max_token_length");
    std::vector<Piece> pieces;  // not reserved: vocab_size is the model's claim, the file may hold far less
    for (piece_ = 0; piece_ < vocab_size_; ++piece_) pieces.push_back(read_piece());
    if (const size_t left = file_.bytes().size() - at_; left > 0) {
      refuse(std::to_string(left) + " bytes are left after the " + std::to_string(vocab_size_) +
             " pieces of the model's vocabulary; expected the end of the file: this is another model's "
             "tokenizer");
    }
    return pieces;
  }

 private:
  Piece read_piece() {
    const float score = take<float>("score");
    if (!std::isfinite(score))
      refuse(where() + " has the score " + std::to_string(score) + ", expected a number");
    const int32_t length = take<int32_t>("length");
    if (length < 0 || static_cast<uint32_t>(length) > max_length_) {
      refuse(where() + " has the length " + std::to_string(length) + ", expected 0 to max_token_length, " +
             std::to_string(max_length_));
    }
    const std::byte* text = take_bytes(static_cast<size_t>(length), "text");
    return {score, std::string(reinterpret_cast<const char*>(text), static_cast<size_t>(length))};
  }

  template <typename T>
  T take(const char* what) {
    T value;
    std::memcpy(&value, take_bytes(sizeof(T), what), sizeof(T));
    return value;
  }

  const std::byte* take_bytes(size_t bytes, const char* what) {
    const size_t left = file_.bytes().size() - at_;
    if (bytes > left) {
      refuse("ends in the " + std::string(what) + " of " + where() + ": expected " + std::to_string(bytes) +
             " bytes, found " + std::to_string(left) + " (truncated, or another model's tokenizer)");
    }
    at_ += bytes;
    return file_.bytes().data() + at_ - bytes;
  }

  std::string where() const {
    return "piece " + std::to_string(piece_) + " of " + std::to_string(vocab_size_);
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    throw std::invalid_argument("tokenizer " + file_.path() + ": " + reason);
  }

  const io::MappedFile& file_;
  int vocab_size_;
  int piece_ = 0;
  size_t at_ = 0;
  uint32_t max_length_ = 0;
};

std::vector<Piece> read_pieces(const std::string& path, int vocab_size) {
  if (vocab_size < kFirstOrdinary) {
    throw std::invalid_argument("tokenizer " + path + ": a vocabulary of " + std::to_string(vocab_size) +
                                " has no room for <unk>, BOS and EOS; expected at least 3");
  }
  const io::MappedFile file(path);
  return PieceReader(file, vocab_size).read();
}

// "<0x00>" … "<0xFF>" at their usual ids.
bool has_byte_pieces(const std::vector<Piece>& pieces) {
  if (pieces.size() < kFirstOrdinary + kBytePieces) return false;
  for (int byte = 0; byte < kBytePieces; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    if (pieces[static_cast<size_t>(kFirstOrdinary + byte)].text != name) return false;
  }
  return true;
}

uint64_t pair_key(int left, int right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// The bytes of the UTF-8 character that starts at `at`: a lead byte and its continuation bytes. Bytes that are not
// UTF-8 come out as short runs that no piece matches, and so as themselves.
size_t character_length(std::string_view text, size_t at) {
  size_t end = at + 1;
  while (end < text.size() && end - at < 4 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return end - at;
}

}  // namespace

struct Tokenizer::Impl {
  std::vector<Piece> pieces;
  bool byte_fallback = false;
  std::unordered_map<std::string_view, int> ids;  // for the pieces that text can become; views into `pieces`
  std::unordered_map<uint64_t, int> merges;       // pair_key(left, right) -> the id of both together

  Impl(const std::string& path, int vocab_size)
      : pieces(read_pieces(path, vocab_size)), byte_fallback(has_byte_pieces(pieces)) {
    const int first = kFirstOrdinary + (byte_fallback ? kBytePieces : 0);
    for (int id = first; id < vocab_size; ++id) {
      if (!text_of(id).empty()) ids.emplace(text_of(id), id);
    }
    for (const auto& [text, id] : ids) add_merges(text, id);
  }

  std::string_view text_of(int id) const { return pieces[static_cast<size_t>(id)].text; }
  float score_of(int id) const { return pieces[static_cast<size_t>(id)].score; }

  bool is_byte(int id) const {
    return byte_fallback && id >= kFirstOrdinary && id < kFirstOrdinary + kBytePieces;
  }

  std::optional<int> find(std::string_view text) const {
    const auto found = ids.find(text);
    return found == ids.end() ? std::nullopt : std::optional(found->second);
  }

  void add_merges(std::string_view text, int id) {
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = find(text.substr(0, cut)), right = find(text.substr(cut));
      if (left && right) merges.emplace(pair_key(*left, *right), id);
    }
  }

  void append_character(std::string_view character, std::vector<int>& out) const {
    if (const auto id = find(character)) {
      out.push_back(*id);
    } else if (byte_fallback) {
      for (const char c : character) out.push_back(kFirstOrdinary + static_cast<unsigned char>(c));
    } else {
      out.push_back(kUnknown);
    }
  }
};

namespace {

// The symbols of a text as a linked list, merged from the best pair down.
class Merger {
 public:
  using Merges = std::unordered_map<uint64_t, int>;

  Merger(std::vector<int> ids, const Merges& merges, const std::vector<Piece>& pieces)
      : ids_(std::move(ids)), next_(ids_.size()), previous_(ids_.size()), merges_(merges), pieces_(pieces) {
    for (int i = 0; i < size(); ++i) {
      next_[at(i)] = i + 1;
      previous_[at(i)] = i - 1;
    }
    for (int i = 0; i < size(); ++i) propose(i);
  }

  std::vector<int> merge_all() {
    while (!candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      if (still_there(best)) merge(best);
    }
    std::erase(ids_, kMerged);
    return std::move(ids_);
  }

 private:
  static constexpr int kMerged = -1;  // the symbol has become part of the one to its left

  struct Candidate {
    float score;
    int left;  // index of the left symbol
    int left_id, right_id, merged_id;
    bool operator<(const Candidate& other) const {  // the heap's top: the highest score, then the leftmost
      return score != other.score ? score < other.score : left > other.left;
    }
  };

  static size_t at(int i) { return static_cast<size_t>(i); }
  int size() const { return static_cast<int>(ids_.size()); }

  void propose(int left) {
    if (left < 0 || next_[at(left)] >= size()) return;
    const int left_id = ids_[at(left)], right_id = ids_[at(next_[at(left)])];
    const auto merge = merges_.find(pair_key(left_id, right_id));
    if (merge == merges_.end()) return;
    candidates_.push({pieces_[at(merge->second)].score, left, left_id, right_id, merge->second});
  }

  // A merge changes its symbol's id for a longer piece's, so equal ids mean that nothing happened here.
  bool still_there(const Candidate& c) const {
    const int right = next_[at(c.left)];
    return ids_[at(c.left)] == c.left_id && right < size() && ids_[at(right)] == c.right_id;
  }

  void merge(const Candidate& c) {
    const int right = next_[at(c.left)], after = next_[at(right)];
    ids_[at(c.left)] = c.merged_id;
    ids_[at(right)] = kMerged;
    next_[at(c.left)] = after;
    if (after < size()) previous_[at(after)] = c.left;
    propose(previous_[at(c.left)]);
    propose(c.left);
  }

  std::vector<int> ids_;
  std::vector<int> next_, previous_;
  const Merges& merges_;
  const std::vector<Piece>& pieces_;
  std::priority_queue<Candidate> candidates_;
};

}  // namespace

Tokenizer::Tokenizer(const std::string& path, int vocab_size)
    : impl_(std::make_shared<Impl>(path, vocab_size)) {}

std::vector<int> Tokenizer::encode(std::string_view text) const {
  std::vector<int> ids = {kBos};
  if (text.empty()) return ids;
  impl_->append_character(" ", ids);
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_length(text, at);
    impl_->append_character(text.substr(at, length), ids);
    at += length;
  }
  return Merger(std::move(ids), impl_->merges, impl_->pieces).merge_all();
}

std::string Tokenizer::decode(std::span<const int> ids) const {
  std::string text;
  int previous = kUnknown;
  for (const int id : ids) {
    if (id < 0 || id >= static_cast<int>(impl_->pieces.size())) {
      throw std::invalid_argument("cannot decode the id " + std::to_string(id) + ": expected 0 to " +
                                  std::to_string(impl_->pieces.size() - 1));
    }
    std::string_view piece = impl_->text_of(id);
    if (previous == kBos && piece.starts_with(' ')) piece.remove_prefix(1);
    if (impl_->is_byte(id)) {
      text += static_cast<char>(id - kFirstOrdinary);
    } else if (id != kBos && id != kEos) {
      text += piece;
    }
    previous = id;
  }
  return text;
}

}  // namespace kv::model
