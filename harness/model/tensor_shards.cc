#include "harness/model/tensor_shards.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>

#include "harness/io/json.h"
#include "harness/io/text.h"

namespace kv::model {
namespace {

namespace fs = std::filesystem;

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

WeightMatrix::Type type_of(const io::SafetensorsFile::Tensor& t) { return *cpu::weight_type(t.dtype); }

// The bytes of rows of blocks; nothing if a row has no whole number of blocks, or memory has no room for them.
std::optional<int64_t> bytes_of(const std::vector<int64_t>& shape, int64_t in, cpu::WeightType type) {
  const cpu::WeightLayout& layout = cpu::layout_of(type);
  int64_t values = 1, bytes = 0;
  for (const int64_t size : shape) {
    if (size < 1 || __builtin_mul_overflow(values, size, &values)) return std::nullopt;
  }
  if (in % layout.values != 0 || __builtin_mul_overflow(values / layout.values, layout.bytes, &bytes))
    return std::nullopt;
  return bytes;
}

std::set<std::string> indexed_names(const std::string& path) {
  const nlohmann::json index = io::read_json_object(path, "the index of a Hugging Face model folder");
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty())
    throw std::invalid_argument(path + ": 'weight_map' must name the file of each tensor");
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    const bool plain = file.is_string() && file.get<std::string>().find('/') == std::string::npos;
    if (!plain)
      throw std::invalid_argument(path + ": the file of " + tensor + " must be a name in this folder");
    names.insert(file.get<std::string>());
  }
  return names;
}

}  // namespace

Shards::Shards(const std::string& folder) : folder_(folder) {
  for (const std::string& name : file_names()) {
    files_.push_back(std::make_unique<io::SafetensorsFile>((fs::path(folder_) / name).string()));
    for (const auto& [tensor_name, tensor] : files_.back()->tensors()) {
      if (!places_.emplace(tensor_name, Place{&files_.back()->path(), &tensor}).second) {
        throw std::invalid_argument("model " + folder_ + ": tensor " + tensor_name + " is in two files, " +
                                    *places_.at(tensor_name).path + " and " + files_.back()->path());
      }
    }
  }
  const fs::path index = fs::path(folder_) / "model.gguf.json";
  if (fs::exists(index)) add_gguf(index.string());
}

void Shards::add_gguf(const std::string& index_path) {
  const nlohmann::json index = io::read_json_object(index_path, "the index of a GGUF file");
  gguf_ = std::make_unique<io::MappedFile>((fs::path(folder_) / "model.gguf").string());
  try {
    if (index.at("bytes").get<size_t>() != gguf_->bytes().size())
      throw std::invalid_argument(gguf_->path() + " has changed since " + index_path + " was made of it");
    for (const auto& [name, entry] : index.at("tensors").items()) place_gguf(name, entry);
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument(index_path +
                                ": it does not say of each tensor its dtype, shape and offsets; without this "
                                "folder they are written anew");
  }
}

void Shards::place_gguf(const std::string& name, const nlohmann::json& entry) {
  const auto dtype = entry.at("dtype").get<std::string>();
  const auto shape = entry.at("shape").get<std::vector<int64_t>>();
  const auto offsets = entry.at("offsets").get<std::vector<int64_t>>();
  const bool by_rows = entry.at("by_rows").get<bool>();
  const auto type = cpu::weight_type(dtype);
  const auto file = gguf_->bytes();
  const auto parts = std::ssize(offsets);
  const bool whole =
      type && shape.size() >= 2 && parts > 0 && (by_rows || parts == 1) && shape.back() % parts == 0;
  const auto bytes = whole ? bytes_of(shape, by_rows ? shape.end()[-2] : shape.back(), *type) : std::nullopt;
  const auto inside = [&](int64_t offset) {
    return offset >= 0 && offset <= std::ssize(file) && *bytes / parts <= std::ssize(file) - offset;
  };
  if (!bytes || !std::ranges::all_of(offsets, inside))
    throw std::invalid_argument(gguf_->path() + ": tensor " + io::as_message(name) +
                                " does not lie in it as its index says");
  Place place{&gguf_->path(), nullptr};
  for (size_t part = 0; by_rows && part < offsets.size(); ++part)
    place.rows.push_back(file.data() + offsets[part]);
  in_gguf_.push_back(std::make_unique<io::SafetensorsFile::Tensor>(io::SafetensorsFile::Tensor{
      dtype, shape, file.subspan(static_cast<size_t>(offsets[0]), static_cast<size_t>(*bytes / parts))}));
  place.tensor = in_gguf_.back().get();
  if (!places_.emplace(name, place).second)
    throw std::invalid_argument("model " + folder_ + ": tensor " + io::as_message(name) +
                                " is in two files, " + *places_.at(name).path + " and " + gguf_->path());
}

int64_t Shards::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, place] : places_)
    sum += static_cast<int64_t>(place.tensor->bytes.size() * std::max<size_t>(place.rows.size(), 1));
  return sum;
}

// Those that the index names; else the one of the usual name; else all.
std::set<std::string> Shards::file_names() const {
  const fs::path index = fs::path(folder_) / "model.safetensors.index.json";
  if (fs::exists(index)) return indexed_names(index.string());
  if (fs::exists(fs::path(folder_) / "model.safetensors")) return {"model.safetensors"};
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path().extension() == ".safetensors") names.insert(entry.path().filename().string());
  }
  if (names.empty()) {
    throw std::invalid_argument("model " + folder_ +
                                ": there is no .safetensors in it; expected the folder of a " +
                                "Hugging Face model");
  }
  return names;
}

const io::SafetensorsFile::Tensor& Shards::tensor(const std::string& name, const std::vector<int64_t>& shape,
                                                  bool by_rows) {
  const auto found = places_.find(name);
  if (found == places_.end()) {
    throw std::invalid_argument("model " + folder_ + ": tensor " + name + " is in none of its " +
                                std::to_string(files_.size()) +
                                " .safetensors; its config.json asks for it, " + shape_text(shape));
  }
  const auto refuse = [&](const std::string& what) {
    throw std::invalid_argument("model " + *found->second.path + ": tensor " + name + " " + what);
  };
  const io::SafetensorsFile::Tensor& t = *found->second.tensor;
  found->second.read = true;
  if (t.shape != shape)
    refuse("has the shape " + shape_text(t.shape) + ", expected " + shape_text(shape) +
           " by its config.json");
  const auto type = cpu::weight_type(t.dtype);
  if (!found->second.rows.empty() && !by_rows)
    refuse("lies by rows, as only those that multiply from the right do");
  if (!type || (cpu::is_blocks(*type) && shape.size() < 2))
    refuse("has the type " + t.dtype + ", expected F32, F16 or BF16");
  return t;
}

bool Shards::differ(const std::string& a, const std::string& b) {
  const auto first = places_.find(a), second = places_.find(b);
  if (first == places_.end() || second == places_.end()) return false;
  first->second.read = second->second.read = true;
  const io::SafetensorsFile::Tensor &x = *first->second.tensor, &y = *second->second.tensor;
  return x.dtype != y.dtype || x.shape != y.shape ||
         !std::equal(x.bytes.begin(), x.bytes.end(), y.bytes.begin(), y.bytes.end());
}

void Shards::refuse_unread() const {
  for (const auto& [name, place] : places_) {
    if (place.read || io::changes_nothing("tensors", name)) continue;
    throw std::invalid_argument("model " + *place.path + ": tensor " + name + " " +
                                shape_text(place.tensor->shape) +
                                " is one that its config.json does not ask for, and may change logits; take "
                                "it out if it does not, or state what it is for");
  }
}

WeightMatrix Shards::matrix(const std::string& name, int64_t rows, int64_t cols) {
  const io::SafetensorsFile::Tensor& t = tensor(name, {rows, cols});
  return {t.bytes.data(), type_of(t), rows, cols};
}

std::vector<float> Shards::vector(const std::string& name, const std::vector<int64_t>& shape) {
  const io::SafetensorsFile::Tensor& t = tensor(name, shape);
  int64_t size = 1;
  for (const int64_t side : shape) size *= side;
  std::vector<float> values(static_cast<size_t>(size));
  io::read_f32(t, 0, size, values.data());
  return values;
}

WeightMatrix Shards::transposed(const std::string& name, const Columns& columns) {
  const io::SafetensorsFile::Tensor& t = tensor(name, columns.shape, true);
  if (!places_.at(name).rows.empty() || cpu::is_blocks(type_of(t)))
    return stored_rows(places_.at(name), name, columns);
  const int64_t in = columns.shape.end()[-2], out = columns.shape.end()[-1];
  const int64_t bytes = t.dtype == "F32" ? 4 : 2;
  copies_.push_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(columns.n * in * bytes)));
  std::byte* to = copies_.back().get();
  for (int64_t i = 0; i < in; ++i) {
    const std::byte* row = t.bytes.data() + (columns.matrix * in + i) * out * bytes;
    for (int64_t r = 0; r < columns.n; ++r) {
      std::memcpy(to + (r * in + i) * bytes, row + (columns.first + r * columns.step) * bytes,
                  static_cast<size_t>(bytes));
    }
  }
  return {to, type_of(t), columns.n, in};
}

WeightMatrix Shards::stored_rows(const Place& place, const std::string& name, const Columns& columns) const {
  const int64_t in = columns.shape.end()[-2], out = columns.shape.end()[-1], parts = std::ssize(place.rows);
  if (columns.step != parts)
    throw std::invalid_argument("model " + *place.path + ": tensor " + name + " must lie there as " +
                                std::to_string(columns.step) + " matrices, by rows");
  const std::byte* rows = place.rows[static_cast<size_t>(columns.first % parts)];
  return WeightMatrix(rows, type_of(*place.tensor), (columns.matrix + 1) * (out / parts), in)
      .part(columns.matrix * (out / parts) + columns.first / parts, columns.n);
}

}  // namespace kv::model
