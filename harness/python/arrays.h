// Python's arrays as the cache takes them: f32 is read in place through the buffer protocol or DLPack; f16 and bf16, whose
// values f32 has too, are widened into a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <vector>

namespace kv::python {

// A dimension that the call determines: the tokens of a step.
inline constexpr int64_t kAnyTokens = -1;

// An argument that must be an array: its name in messages, and its shape, as in {{"kv_heads", 8}, {"n", kAnyTokens},
// {"head_dim", 128}}.
struct Wanted {
  struct Dimension {
    const char* name;
    int64_t size;
  };
  const char* name;
  std::vector<Dimension> shape;
};

// An array in C order on the CPU, as f32. Keeps Python's object alive.
class Array {
 public:
  // Throws nb::type_error for an object that is no array of f32, f16 or bf16 (`writable`: of f32), and
  // std::invalid_argument for a wrong shape or layout, a GPU's memory, or a read-only array that must be `writable`;
  // each with one line.
  Array(nanobind::handle object, const Wanted& wanted, bool writable = false);

  float* data() const { return data_; }
  int64_t tokens() const { return tokens_; }  // size of the dimension kAnyTokens

 private:
  nanobind::ndarray<nanobind::ro> read_;
  nanobind::ndarray<> written_;
  std::vector<float> widened_;
  float* data_ = nullptr;
  int64_t tokens_ = 0;
};

// A new, uninitialised NumPy array of f32.
nanobind::ndarray<nanobind::numpy, float> new_array(const std::vector<size_t>& shape);

}  // namespace kv::python
