#include "harness/model/token_ids.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string_view>

#include "harness/io/mapped_file.h"
#include "harness/io/model_files.h"
#include "harness/io/paths.h"
#include "harness/model/model.h"

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

std::string read_text(const std::string& path) {
  const io::MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// Documents stand between lines `<|endoftext|>`; each begins with BOS, as models are trained on such texts.
std::vector<int> encode_documents(const Tokenizer& tokenizer, const std::string& text) {
  const std::string mark = "<|endoftext|>", space = " \n\r\t";
  if (text.find(mark) == std::string::npos) return tokenizer.encode(text);
  std::vector<int> ids;
  for (size_t from = 0; from < text.size();) {
    const size_t to = std::min(text.find(mark, from), text.size());
    const std::string document = text.substr(from, to - from);
    if (const size_t first = document.find_first_not_of(space); first != std::string::npos) {
      const std::vector<int> more =
          tokenizer.encode(document.substr(first, document.find_last_not_of(space) - first + 1));
      ids.insert(ids.end(), more.begin(), more.end());
    }
    from = to + mark.size();
  }
  return ids;
}

// A tokenizer without byte pieces makes one id of all that it does not know; a little of that is a text's
// rare characters, much of it the wrong tokenizer.
void check_known(const std::vector<int>& ids, const std::string& path) {
  const auto unknown = static_cast<size_t>(std::count(ids.begin(), ids.end(), Tokenizer::kUnknown));
  if (10 * unknown <= ids.size()) return;
  throw std::invalid_argument(
      "text " + path + ": " + std::to_string(100 * unknown / ids.size()) +
      " % of it is outside the tokenizer's vocabulary; it needs another tokenizer and model");
}

}  // namespace

std::vector<int> read_token_file(const std::string& path, int vocab_size) {
  const io::MappedFile file(path);
  const std::string extension = std::filesystem::path(path).extension();
  const Ids ids = extension == ".npy" ? npy_ids(file) : raw_ids(file, extension == ".u16" ? 2 : 4);
  std::vector<int> tokens(ids.data.size() / ids.bytes);
  if (tokens.empty()) refuse_ids(path, "it holds no ids");
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t id = id_at(ids, i);
    if (id < 0 || id >= vocab_size) {
      refuse_ids(path, "id " + std::to_string(id) + " at place " + std::to_string(i) +
                           " is not in the model's vocabulary, 0 to " + std::to_string(vocab_size - 1));
    }
    tokens[i] = static_cast<int>(id);
  }
  return tokens;
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
                                "--tokenizer tokenizer.json or llama2.c's tokenizer.bin");
  }
  if (std::filesystem::path(tokenizer_path).extension() == ".json")
    return read_token_file(io::tokens_of_text(tokenizer_path, text_path), vocab_size);
  const std::vector<int> ids = encode_documents(Tokenizer(tokenizer_path, vocab_size), read_text(text_path));
  check_known(ids, text_path);
  return ids;
}

}  // namespace kv::model
