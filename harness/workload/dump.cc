// Tensors that a user recorded from a model, checked completely before any measurement: one NaN in a cache poisons
// every later softmax and is cheaper to name here.
#include <algorithm>
#include <climits>
#include <cmath>
#include <filesystem>
#include <stdexcept>

#include "harness/io/safetensors.h"
#include "harness/workload/workload.h"
#include "kernels/attention.h"

namespace kv::workload {
namespace {

using Tensor = io::SafetensorsFile::Tensor;

class Dump : public Workload {
 public:
  explicit Dump(const std::string& path)
      : file_(path), q_(file_.tensor("q")), k_(file_.tensor("k")), v_(file_.tensor("v")) {
    check_form("q", q_);
    check_form("k", k_);
    check_form("v", v_);
    check_agreement();
    shape_ = {static_cast<int>(q_.shape[0]), static_cast<int>(q_.shape[1]), static_cast<int>(k_.shape[1]),
              static_cast<int>(q_.shape[3])};
    check_finite("q", q_);
    check_finite("k", k_);
    check_finite("v", v_);
  }

  const WorkloadShape& shape() const override { return shape_; }
  std::string name() const override { return std::filesystem::path(file_.path()).filename().string(); }
  int64_t max_tokens() const override { return q_.shape[2]; }

  void read(int sequence, int layer, int64_t first, int64_t n, float* q, float* k, float* v) const override {
    if (sequence < 0 || layer < 0 || layer >= shape_.layers || first < 0 || n < 0 ||
        n > max_tokens() - first) {
      throw std::logic_error("Workload::read: no such sequence, layer or token");
    }
    const auto copy = [&](const Tensor& tensor, float* out) {
      const int64_t heads = tensor.shape[1], dim = tensor.shape[3];
      for (int64_t head = 0; out && head < heads; ++head) {
        io::read_f32(tensor, ((layer * heads + head) * max_tokens() + first) * dim, n * dim,
                     out + head * n * dim);
      }
    };
    copy(q_, q);
    copy(k_, k);
    copy(v_, v);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw std::invalid_argument(file_.path() + ": " + what);
  }

  static std::string text(const std::vector<int64_t>& shape) {
    std::string list;
    for (int64_t size : shape) list += (list.empty() ? "" : ", ") + std::to_string(size);
    return "[" + list + "]";
  }

  void check_form(const std::string& name, const Tensor& tensor) const {
    if (tensor.dtype != "F32" && tensor.dtype != "F16" && tensor.dtype != "BF16") {
      refuse(name + " has dtype " + tensor.dtype + "; it must be F32, F16 or BF16");
    }
    const auto is_size = [](int64_t size) { return size >= 1 && size <= INT_MAX; };
    if (tensor.shape.size() != 4 || !std::all_of(tensor.shape.begin(), tensor.shape.end(), is_size)) {
      refuse(name + " has shape " + text(tensor.shape) +
             "; it must be [layers, heads, tokens, head_dim], each from 1");
    }
  }

  void check_agreement() const {
    if (k_.shape != v_.shape)
      refuse("k " + text(k_.shape) + " and v " + text(v_.shape) + " must have the same shape");
    std::vector<int64_t> like_k = q_.shape;
    like_k[1] = k_.shape[1];
    if (like_k != k_.shape) {
      refuse("q " + text(q_.shape) + " and k " + text(k_.shape) +
             " may differ in their heads only (second size)");
    }
    if (q_.shape[1] % k_.shape[1] != 0) {
      refuse("q has " + std::to_string(q_.shape[1]) + " heads, which is not a multiple of k's " +
             std::to_string(k_.shape[1]));
    }
    if (q_.shape[3] % 8 != 0 || q_.shape[3] > kMaxHeadDim) {
      refuse("head_dim " + std::to_string(q_.shape[3]) + " must be a multiple of 8 and at most " +
             std::to_string(kMaxHeadDim));
    }
  }

  void check_finite(const std::string& name, const Tensor& tensor) const {
    std::vector<float> chunk(static_cast<size_t>(std::min<int64_t>(tensor.elements(), 1 << 16)));
    for (int64_t first = 0; first < tensor.elements(); first += static_cast<int64_t>(chunk.size())) {
      const int64_t n = std::min(static_cast<int64_t>(chunk.size()), tensor.elements() - first);
      io::read_f32(tensor, first, n, chunk.data());
      const auto end = chunk.begin() + n;
      const auto bad = std::find_if_not(chunk.begin(), end, [](float x) { return std::isfinite(x); });
      if (bad != end) refuse_value(name, tensor, first + (bad - chunk.begin()), *bad);
    }
  }

  [[noreturn]] void refuse_value(const std::string& name, const Tensor& tensor, int64_t element,
                                 float value) const {
    std::vector<int64_t> index(4);
    for (size_t axis = 4; axis-- > 0; element /= tensor.shape[axis])
      index[axis] = element % tensor.shape[axis];
    refuse(name + text(index) + " is " + (std::isnan(value) ? "NaN" : "infinite") +
           "; every value must be finite");
  }

  io::SafetensorsFile file_;
  const Tensor &q_, &k_, &v_;
  WorkloadShape shape_;
};

}  // namespace

std::unique_ptr<Workload> open_dump(const std::string& path) { return std::make_unique<Dump>(path); }

}  // namespace kv::workload
