#include "harness/model/token_ids.h"

#include <bit>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string_view>

#include "harness/io/mapped_file.h"
#include "harness/io/model_files.h"
#include "harness/io/paths.h"

static_assert(std::endian::native == std::endian::little, "ids are read as they lie in memory");

namespace kv::model {
namespace {

[[noreturn]] void refuse_ids(const std::string& path, const std::string& what) {
  throw std::invalid_argument("token ids " + path + ": " + what);
}

// Numbers of one type, back to back.
struct Ids {
  char kind;  // u or i
  size_t bytes;
  std::span<const std::byte> data;
};

// The part of `text` between `begin` and the next `end`; empty if they are not there.
std::string between(std::string_view text, std::string_view begin, char end) {
  const size_t found = text.find(begin);
  if (found == text.npos) return "";
  const std::string_view rest = text.substr(found + begin.size());
  return std::string(rest.substr(0, rest.find(end)));
}

// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html: magic, version, the header's
// length, a Python dict, the data.
Ids npy_ids(const io::MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  const char* text = reinterpret_cast<const char*>(bytes.data());
  if (bytes.size() < 12 || std::memcmp(text, "\x93NUMPY", 6) != 0) {
    refuse_ids(file.path(), "not a .npy file: it does not begin with \\x93NUMPY and a header");
  }
  const bool short_length = text[6] == 1;
  uint32_t length = 0;
  std::memcpy(&length, text + 8, short_length ? 2 : 4);
  const size_t start = short_length ? 10 : 12;
  if (length > bytes.size() - start) refuse_ids(file.path(), "it ends in its .npy header");
  const std::string_view header(text + start, length);
  const std::string type = between(header, "'descr': '", '\''), shape = between(header, "'shape': (", ')');
  if (type != "<u2" && type != "<u4" && type != "<i4" && type != "<i8")
    refuse_ids(file.path(), "its elements are '" + type + "'; expected <u2, <u4, <i4 or <i8");
  if (shape.empty() || shape.find(',') < shape.size() - 1)
    refuse_ids(file.path(), "its shape is (" + shape + "); expected one dimension");
  const Ids ids{type[1], static_cast<size_t>(type[2] - '0'), bytes.subspan(start + length)};
  const size_t count = ids.data.size() / ids.bytes;
  const std::string stated = std::to_string(count);
  if ((shape != stated && shape != stated + ",") || ids.data.size() % ids.bytes != 0)
    refuse_ids(file.path(), "its shape is (" + shape + "), its data holds " + stated + " ids");
  return ids;
}

Ids raw_ids(const io::MappedFile& file, size_t bytes) {
  if (file.bytes().size() % bytes != 0) {
    refuse_ids(file.path(), "its " + std::to_string(file.bytes().size()) + " bytes are not whole ids of " +
                                std::to_string(bytes));
  }
  return {'u', bytes, file.bytes()};
}

int64_t id_at(const Ids& ids, size_t index) {
  uint64_t bits = 0;
  std::memcpy(&bits, ids.data.data() + index * ids.bytes, ids.bytes);
  return ids.kind == 'i' && ids.bytes == 4 ? static_cast<int32_t>(bits) : static_cast<int64_t>(bits);
}

std::vector<int> read_ids(const std::string& path, const std::string& shown, int vocab_size) {
  const io::MappedFile file(path);
  const std::string extension = std::filesystem::path(path).extension();
  const Ids ids = extension == ".npy" ? npy_ids(file) : raw_ids(file, extension == ".u16" ? 2 : 4);
  std::vector<int> tokens(ids.data.size() / ids.bytes);
  if (tokens.empty()) refuse_ids(shown, "it holds no ids");
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t id = id_at(ids, i);
    if (id < 0 || id >= vocab_size) {
      refuse_ids(shown, "id " + std::to_string(id) + " at place " + std::to_string(i) +
                            " is not in the model's vocabulary, 0 to " + std::to_string(vocab_size - 1));
    }
    tokens[i] = static_cast<int>(id);
  }
  return tokens;
}

}  // namespace

std::vector<int> read_token_file(const std::string& path, int vocab_size) {
  return read_ids(path, path, vocab_size);
}

std::string tokenizer_for(const std::string& model_path, const std::string& given) {
  if (!given.empty()) return io::find_input(given, "tokenizer").string();
  const std::filesystem::path own = std::filesystem::path(model_path) / "tokenizer.json";
  std::error_code ignored;
  return std::filesystem::exists(own, ignored) ? own.string() : "";
}

std::vector<int> read_tokens(const std::string& text_path, const std::string& tokenizer_path,
                             int vocab_size) {
  if (io::is_token_file(text_path)) return read_token_file(text_path, vocab_size);
  if (tokenizer_path.empty()) {
    throw std::invalid_argument("text " + text_path +
                                " needs a tokenizer: tokenizer.json in the model's folder, or one given, as "
                                "--tokenizer tokenizer.json");
  }
  return read_ids(io::tokens_of_text(tokenizer_path, text_path), text_path + " by " + tokenizer_path,
                  vocab_size);
}

}  // namespace kv::model
