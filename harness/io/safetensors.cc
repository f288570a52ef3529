// https://github.com/huggingface/safetensors: u64 length N, N bytes of JSON, then the data the JSON's offsets
// point into. No number of the header is trusted until the file's own size agrees with it.
#include "harness/io/safetensors.h"

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string_view>

#include "harness/io/json.h"
#include "harness/io/text.h"
#include "variants/core/place.h"

namespace kv::io {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "the format is little-endian and read in place");

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kLengthBytes = sizeof(uint64_t);

struct Dtype {
  std::string_view name;
  int64_t bytes;
};
constexpr Dtype kDtypes[] = {{"BOOL", 1},    {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
                             {"F8_E8M0", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},     {"BF16", 2},
                             {"I32", 4},     {"U32", 4}, {"F32", 4}, {"F64", 8},     {"I64", 8},
                             {"U64", 8},     {"C64", 8}};

// The place of a mistake: every refusal is one line that begins with it.
struct Place {
  const std::string& path;
  std::string tensor = {};

  [[noreturn]] void refuse(const std::string& what) const {
    throw std::invalid_argument(path + ": " + (tensor.empty() ? "" : "tensor " + tensor + ": ") + what);
  }
};

// A name from the file, quoted and escaped so that it cannot break the line or flood it.
std::string in_quotes(std::string_view name) {
  constexpr size_t kShown = 80;
  const std::string text = json(name.substr(0, kShown)).dump(-1, ' ', true, json::error_handler_t::replace);
  return name.size() <= kShown ? text : text + "…";
}

// 0: unknown, which only a tensor that is read must not be.
int64_t element_bytes(const std::string& dtype) {
  for (const Dtype& known : kDtypes) {
    if (known.name == dtype) return known.bytes;
  }
  return 0;
}

const json& member(const json& entry, const char* key, json::value_t type, const Place& place) {
  const auto it = entry.find(key);
  if (it == entry.end()) place.refuse(std::string("\"") + key + "\" is missing");
  if (it->type() != type) {
    place.refuse(std::string("\"") + key + "\" must be " + json(type).type_name() + ", not " +
                 it->type_name());
  }
  return *it;
}

std::vector<int64_t> sizes(const json& list, const char* key, const Place& place) {
  std::vector<int64_t> values;
  for (const json& item : list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > INT64_MAX) {
      place.refuse(std::string("\"") + key + "\" must hold integers from 0 to 2^63 - 1, not " +
                   item.dump(-1, ' ', true).substr(0, 40));
    }
    values.push_back(item.get<int64_t>());
  }
  return values;
}

int64_t shape_bytes(const std::vector<int64_t>& shape, int64_t element, const Place& place) {
  int64_t bytes = element;
  for (int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) place.refuse("its shape has more than 2^63 bytes");
  }
  return bytes;
}

// nlohmann-json keeps the last of two equal keys and says nothing, so keys are watched while it parses. The
// format is three levels deep at most: file, tensor, list.
class KeyWatch {
 public:
  explicit KeyWatch(const Place& place) : place_(place) {}

  bool operator()(int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      if (depth > 2) place_.refuse("its header is nested deeper than the format allows");
      if (event == json::parse_event_t::object_start) keys_[depth].clear();
    } else if (event == json::parse_event_t::key) {
      const std::string key = value.get<std::string>();
      if (!keys_[depth - 1].insert(key).second)
        place_.refuse("its header has the key " + in_quotes(key) + " twice");
    }
    return true;
  }

 private:
  const Place& place_;
  std::set<std::string> keys_[3];
};

json parse_header(std::string_view text, const Place& place) {
  json header;
  try {
    header = json::parse(text, KeyWatch(place));
  } catch (const json::parse_error& error) {
    place.refuse("its header is not JSON: error at byte " + std::to_string(error.byte) + " of " +
                 std::to_string(text.size()));
  } catch (const json::out_of_range&) {
    place.refuse("its header has a number that is too large");
  }
  if (!header.is_object())
    place.refuse(std::string("its header must be a JSON object, not ") + header.type_name());
  return header;
}

std::string_view header_text(std::span<const std::byte> file, const Place& place) {
  if (file.size() < kLengthBytes) {
    place.refuse("too short for safetensors: " + std::to_string(file.size()) +
                 " bytes, not even the 8 of the length");
  }
  uint64_t length;
  std::memcpy(&length, file.data(), sizeof length);
  // The header is JSON, and the length of one that the format allows ends with zero bytes, which no text has.
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes,
                              file.size() - kLengthBytes);
  if (length > kMaxHeaderBytes && !text.starts_with('{'))
    place.refuse("not safetensors: it begins neither with a length nor with a JSON header");
  if (length > kMaxHeaderBytes) {
    place.refuse("its header claims " + std::to_string(length) + " bytes; the format allows 100000000");
  }
  if (length > file.size() - kLengthBytes) {
    place.refuse("its header claims " + std::to_string(length) + " bytes, but only " +
                 std::to_string(file.size() - kLengthBytes) + " follow");
  }
  return text.substr(0, static_cast<size_t>(length));
}

SafetensorsFile::Tensor parse_tensor(const json& entry, std::span<const std::byte> data, const Place& place) {
  if (!entry.is_object()) place.refuse(std::string("must be a JSON object, not ") + entry.type_name());
  SafetensorsFile::Tensor tensor;
  tensor.dtype = member(entry, "dtype", json::value_t::string, place).get<std::string>();
  const int64_t element = element_bytes(tensor.dtype);
  tensor.shape = sizes(member(entry, "shape", json::value_t::array, place), "shape", place);
  const auto offsets =
      sizes(member(entry, "data_offsets", json::value_t::array, place), "data_offsets", place);
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    place.refuse("\"data_offsets\" must be [begin, end], begin <= end");
  if (offsets[1] > static_cast<int64_t>(data.size())) {
    place.refuse("its data ends at " + std::to_string(offsets[1]) + ", but the file holds " +
                 std::to_string(data.size()) + " bytes of data");
  }
  const int64_t span = offsets[1] - offsets[0],
                bytes = element > 0 ? shape_bytes(tensor.shape, element, place) : span;
  if (element == 0 && shape_bytes(tensor.shape, 1, place) > 8 * span)
    place.refuse("its shape has more than 8 values for each byte");
  if (bytes != span) {
    place.refuse("its shape and dtype need " + std::to_string(bytes) + " bytes, its offsets span " +
                 std::to_string(span));
  }
  tensor.bytes = data.subspan(static_cast<size_t>(offsets[0]), static_cast<size_t>(bytes));
  return tensor;
}

// Tensors must tile the data: each begins where the one before it ends, and the last ends with the file.
void check_tiling(const std::map<std::string, SafetensorsFile::Tensor>& tensors,
                  std::span<const std::byte> data, const Place& place) {
  std::vector<std::pair<size_t, size_t>> parts;  // begin, end
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = static_cast<size_t>(tensor.bytes.data() - data.data());
    parts.emplace_back(begin, begin + tensor.bytes.size());
  }
  std::sort(parts.begin(), parts.end());
  size_t covered = 0;
  for (const auto& [begin, end] : parts) {
    if (begin != covered) {
      place.refuse(std::string(begin < covered ? "tensors overlap" : "no tensor covers the data") +
                   " at data byte " + std::to_string(std::min(begin, covered)));
    }
    covered = end;
  }
  if (covered != data.size()) {
    place.refuse("its tensors end at data byte " + std::to_string(covered) + ", the file's data at " +
                 std::to_string(data.size()));
  }
}

template <typename Half>
void widen(const std::byte* from, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;  // copied, since nothing aligns the data of a file
    std::memcpy(&bits, from + i * 2, sizeof bits);
    out[i] = static_cast<float>(Eigen::numext::bit_cast<Half>(bits));
  }
}

// ---- writing

std::string header_of(std::span<const NamedTensor> tensors) {
  json header = json::object();
  size_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    if (header.contains(tensor.name))
      throw std::logic_error("write_safetensors: two tensors named " + tensor.name);
    int64_t elements = 1;
    for (int64_t size : tensor.shape) elements *= size;
    if (elements != static_cast<int64_t>(tensor.values.size())) {
      throw std::logic_error("write_safetensors: " + tensor.name + "'s values do not fill its shape");
    }
    const size_t end = offset + tensor.values.size_bytes();
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the data
  return text;
}

}  // namespace

int64_t SafetensorsFile::Tensor::elements() const {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;
  return product;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path) {
  const Place place{path_};
  const std::string_view text = header_text(file_.bytes(), place);
  const auto data = file_.bytes().subspan(kLengthBytes + text.size());
  const json header = parse_header(text, place);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    tensors_.emplace(name, parse_tensor(entry, data, Place{path_, in_quotes(name)}));
  }
  check_tiling(tensors_, data, place);
}

const SafetensorsFile::Tensor& SafetensorsFile::tensor(const std::string& name) const {
  const auto it = tensors_.find(name);
  if (it != tensors_.end() && element_bytes(it->second.dtype) == 0)
    Place{path_, in_quotes(name)}.refuse("unknown dtype " + in_quotes(it->second.dtype) + "; known are " +
                                         joined_names(kDtypes));
  if (it != tensors_.end()) return it->second;
  std::string names;
  for (const auto& [known, tensor] : tensors_) {
    if (names.size() > 200) {
      names += ", …";
      break;
    }
    names += (names.empty() ? "" : ", ") + in_quotes(known);
  }
  Place{path_}.refuse("has no tensor " + in_quotes(name) + "; it has " + (names.empty() ? "none" : names));
}

void read_f32(const SafetensorsFile::Tensor& tensor, int64_t first, int64_t n, float* out) {
  if (first < 0 || n < 0 || n > tensor.elements() - first)
    throw std::logic_error("read_f32: outside the tensor");
  if (n == 0) return;
  const std::byte* data = tensor.bytes.data();
  if (tensor.dtype == "F32") {
    std::memcpy(out, data + first * 4, static_cast<size_t>(n) * 4);
  } else if (tensor.dtype == "F16") {
    widen<Eigen::half>(data + first * 2, n, out);
  } else if (tensor.dtype == "BF16") {
    widen<Eigen::bfloat16>(data + first * 2, n, out);
  } else {
    throw std::invalid_argument("tensor has dtype " + in_quotes(tensor.dtype) +
                                "; expected F32, F16 or BF16");
  }
}

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors) {
  const std::string header = header_of(tensors);
  const uint64_t length = header.size();
  NewFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(header)));
  for (const NamedTensor& tensor : tensors) file.write(std::as_bytes(tensor.values));
  file.commit();
}

}  // namespace kv::io
