#include "harness/token_ids.h"

#include <bit>
#include <cstring>
#include <filesystem>
#include <regex>
#include <span>
#include <stdexcept>

#include "harness/mapped_file.h"
#include "harness/model.h"

static_assert(std::endian::native == std::endian::little, "ids are read as they lie in memory");

namespace kv {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw std::invalid_argument("token ids " + path + ": " + what);
}

// Numbers of one type, back to back.
struct Ids {
  char kind;  // u or i
  size_t bytes;
  std::span<const std::byte> data;
};

// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html: magic, version, the header's
// length, a Python dict, the data.
Ids npy_ids(const MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  const char* text = reinterpret_cast<const char*>(bytes.data());
  if (bytes.size() < 12 || std::memcmp(text, "\x93NUMPY", 6) != 0) {
    refuse(file.path(), "not a .npy file: it does not begin with \\x93NUMPY and a header");
  }
  const bool short_length = text[6] == 1;
  uint32_t length = 0;
  std::memcpy(&length, text + 8, short_length ? 2 : 4);
  const size_t start = short_length ? 10 : 12;
  if (length > bytes.size() - start) refuse(file.path(), "it ends in its .npy header");
  const std::string header(text + start, length);
  std::smatch type, shape;
  std::regex_search(header, type, std::regex("'descr': *'([<>|=][a-z][0-9]+)'"));
  std::regex_search(header, shape, std::regex("'shape': *\\(([^)]*)\\)"));
  const std::string name = type[1];
  if (name != "<u2" && name != "<u4" && name != "<i4" && name != "<i8") {
    refuse(file.path(), "its elements are '" + name + "'; expected <u2, <u4, <i4 or <i8");
  }
  if (!std::regex_match(shape[1].str(), std::regex("[0-9]+,?"))) {
    refuse(file.path(), "its shape is (" + shape[1].str() + "); expected one dimension");
  }
  const Ids ids{name[1], static_cast<size_t>(name[2] - '0'), bytes.subspan(start + length)};
  const size_t count = ids.data.size() / ids.bytes;
  const std::string stated = std::to_string(count);
  if ((shape[1] != stated && shape[1] != stated + ",") || ids.data.size() % ids.bytes != 0) {
    refuse(file.path(),
           "its shape is (" + shape[1].str() + "), its data holds " + std::to_string(count) + " ids");
  }
  return ids;
}

Ids raw_ids(const MappedFile& file, size_t bytes) {
  if (file.bytes().size() % bytes != 0) {
    refuse(file.path(), "its " + std::to_string(file.bytes().size()) + " bytes are not whole ids of " +
                            std::to_string(bytes));
  }
  return {'u', bytes, file.bytes()};
}

int64_t id_at(const Ids& ids, size_t index) {
  uint64_t bits = 0;
  std::memcpy(&bits, ids.data.data() + index * ids.bytes, ids.bytes);
  return ids.kind == 'i' && ids.bytes == 4 ? static_cast<int32_t>(bits) : static_cast<int64_t>(bits);
}

std::string read_text(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

bool is_token_file(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension();
  return extension == ".npy" || extension == ".u16" || extension == ".u32";
}

std::vector<int> read_token_file(const std::string& path, int vocab_size) {
  const MappedFile file(path);
  const std::string extension = std::filesystem::path(path).extension();
  const Ids ids = extension == ".npy" ? npy_ids(file) : raw_ids(file, extension == ".u16" ? 2 : 4);
  std::vector<int> tokens(ids.data.size() / ids.bytes);
  if (tokens.empty()) refuse(path, "it holds no ids");
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t id = id_at(ids, i);
    if (id < 0 || id >= vocab_size) {
      refuse(path, "id " + std::to_string(id) + " at place " + std::to_string(i) +
                       " is not in the model's vocabulary, 0 to " + std::to_string(vocab_size - 1));
    }
    tokens[i] = static_cast<int>(id);
  }
  return tokens;
}

std::vector<int> read_tokens(const std::string& text_path, const std::string& tokenizer_path,
                             int vocab_size) {
  if (is_token_file(text_path)) return read_token_file(text_path, vocab_size);
  if (tokenizer_path.empty()) {
    throw std::invalid_argument("text " + text_path +
                                " needs a llama2.c tokenizer; or make token ids of it " +
                                "(.npy): python3 harness/tokenize_text.py");
  }
  return Tokenizer(tokenizer_path, vocab_size).encode(read_text(text_path));
}

}  // namespace kv
