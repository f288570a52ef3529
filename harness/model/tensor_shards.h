// The tensors of a Hugging Face folder, whichever of its .safetensors they lie in, or, of a folder made of a GGUF file, in
// that: model.gguf.json says where (gguf_to_hugging_face.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "harness/io/mapped_file.h"
#include "harness/io/safetensors.h"
#include "harness/model/tensor_source.h"

namespace kv::model {

class Shards : public TensorSource {
 public:
  // Throws std::invalid_argument for a folder without tensors, a damaged file, and a tensor in two files.
  explicit Shards(const std::string& folder);

  bool has(const std::string& name) const override { return places_.contains(name); }
  bool differ(const std::string& a, const std::string& b) override;
  int64_t bytes() const;
  // Throws std::invalid_argument with a tensor that nobody asked for and that changes logits for all that is known.
  void refuse_unread() const;

  // The rest checks that the tensor is there, of this shape and in f32, f16 or bf16, a matrix perhaps in blocks, and throws
  // std::invalid_argument else.
  WeightMatrix matrix(const std::string& name, int64_t rows, int64_t cols) override;
  std::vector<float> vector(const std::string& name, const std::vector<int64_t>& shape) override;
  // A copy in the tensor's type; none of a GGUF file's, which lie so.
  WeightMatrix transposed(const std::string& name, const Columns& columns) override;

 private:
  struct Place {
    const std::string* path;
    const io::SafetensorsFile::Tensor* tensor;
    bool read = false;
    // The parts of a GGUF file's tensor whose columns are rows there; columns are rows of the parts in turn.
    std::vector<const std::byte*> rows = {};
  };

  const io::SafetensorsFile::Tensor& tensor(const std::string& name, const std::vector<int64_t>& shape,
                                            bool by_rows = false);
  std::set<std::string> file_names() const;
  void add_gguf(const std::string& index_path);
  void place_gguf(const std::string& name, const nlohmann::json& entry);
  WeightMatrix stored_rows(const Place& place, const std::string& name, const Columns& columns) const;

  std::string folder_;
  std::vector<std::unique_ptr<io::SafetensorsFile>> files_;
  std::unique_ptr<io::MappedFile> gguf_;
  std::vector<std::unique_ptr<io::SafetensorsFile::Tensor>> in_gguf_;
  std::map<std::string, Place> places_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace kv::model
