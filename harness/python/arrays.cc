#include "harness/python/arrays.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "kernels/math.h"

namespace nb = nanobind;

namespace kv::python {
namespace {

std::string type_of(nb::handle object) { return nb::cast<std::string>(object.type().attr("__name__")); }

// "float64", "int8", "bfloat16".
std::string name_of(nb::dlpack::dtype type) {
  static constexpr const char* kKinds[] = {"int", "uint", "float", "object", "bfloat", "complex", "bool"};
  const std::string kind = type.code < std::size(kKinds) ? kKinds[type.code] : "dtype";
  return (kind == "bool" ? kind : kind + std::to_string(type.bits)) +
         (type.lanes == 1 ? "" : "x" + std::to_string(type.lanes));
}

// "(kv_heads=8, n, head_dim=128)".
std::string text_of(const Wanted& wanted) {
  std::string text;
  for (const Wanted::Dimension& d : wanted.shape) {
    text += (text.empty() ? "" : ", ") + std::string(d.name);
    if (d.size != kAnyTokens) text += "=" + std::to_string(d.size);
  }
  return "(" + text + ")";
}

template <class Any>
std::string shape_of(const Any& array) {
  std::string text;
  for (size_t i = 0; i < array.ndim(); ++i) text += (i ? ", " : "") + std::to_string(array.shape(i));
  return "(" + text + (array.ndim() == 1 ? ",)" : ")");
}

// A dimension of size 1 may have any stride.
template <class Any>
bool in_c_order(const Any& array) {
  int64_t stride = 1;
  for (size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != stride) return false;
    stride *= static_cast<int64_t>(array.shape(i));
  }
  return true;
}

// The conversion to f32; null for f32 itself. Throws nb::type_error for other types, and for 16 bits that must be
// `writable`. `is_bits`: an array of uint16 holds bf16.
using Widen = float (*)(uint16_t bits);
template <class Any>
Widen widening(const Any& array, const std::string& name, bool is_bits, bool writable) {
  const nb::dlpack::dtype type = array.dtype();
  if (type == nb::dtype<float>()) return nullptr;
  const auto is = [&](nb::dlpack::dtype_code code) {
    return type == nb::dlpack::dtype{static_cast<uint8_t>(code), 16, 1};
  };
  if (!writable && (is_bits || is(nb::dlpack::dtype_code::Bfloat))) return bf16_to_f32;
  if (!writable && is(nb::dlpack::dtype_code::Float)) return f16_to_f32;
  const char* needed = writable ? "float32 is needed" : "float32, float16 or bfloat16 is needed";
  throw nb::type_error((name + " is of " + name_of(type) + "; " + needed).c_str());
}

// NumPy's arrays of bfloat16 (ml_dtypes) offer neither a buffer nor DLPack, so their bits are read.
nb::object bfloat16_bits(nb::handle object) {
  const nb::object type = nb::getattr(object, "dtype", nb::none());
  const nb::object name = nb::getattr(type, "name", nb::none());
  if (!nb::isinstance<nb::str>(name) || nb::cast<std::string>(name) != "bfloat16") return {};
  return object.attr("view")("uint16");
}

template <class Any>
int64_t check(const Any& array, const Wanted& wanted) {
  const std::string name = wanted.name;
  if (array.device_type() != nb::device::cpu::value)
    throw std::invalid_argument(name +
                                " lies in a GPU's memory; the cache reads the CPU's: move it there first");
  bool same = array.ndim() == wanted.shape.size();
  int64_t tokens = 0;
  for (size_t i = 0; same && i < wanted.shape.size(); ++i) {
    const auto size = static_cast<int64_t>(array.shape(i));
    if (wanted.shape[i].size == kAnyTokens) tokens = size;
    same = wanted.shape[i].size == (wanted.shape[i].size == kAnyTokens ? kAnyTokens : size) && size > 0;
  }
  if (!same)
    throw std::invalid_argument(name + " has the shape " + shape_of(array) + "; " + text_of(wanted) +
                                " is needed, with n of at least 1");
  if (!in_c_order(array) || reinterpret_cast<uintptr_t>(array.data()) % (array.dtype().bits / 8) != 0)
    throw std::invalid_argument(name +
                                " is not contiguous; numpy.ascontiguousarray() or .contiguous() makes it so");
  return tokens;
}

}  // namespace

Array::Array(nb::handle object, const Wanted& wanted, bool writable) {
  const std::string name = wanted.name;
  const nb::object bits = writable ? nb::object() : bfloat16_bits(object);
  if (!nb::try_cast(bits ? nb::handle(bits) : object, read_))
    throw nb::type_error((name + " is a " + type_of(object) +
                          " that is not readable as an array of numbers; a NumPy array, or another with "
                          "__dlpack__, is needed (a PyTorch tensor: .detach())")
                             .c_str());
  const Widen widen = widening(read_, name, static_cast<bool>(bits), writable);
  tokens_ = check(read_, wanted);
  data_ = const_cast<float*>(static_cast<const float*>(read_.data()));
  if (widen) {
    const auto* narrow = static_cast<const uint16_t*>(read_.data());
    widened_.resize(read_.size());
    std::transform(narrow, narrow + read_.size(), widened_.begin(), widen);
    data_ = widened_.data();
  }
  if (!writable) return;
  if (!nb::try_cast(object, written_)) throw std::invalid_argument(name + " is read-only");
  data_ = static_cast<float*>(written_.data());
}

nb::ndarray<nb::numpy, float> new_array(const std::vector<size_t>& shape) {
  size_t numbers = 1;
  for (const size_t size : shape) numbers *= size;
  auto data = std::unique_ptr<float[]>(new float[numbers]);
  nb::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return {data.release(), shape.size(), shape.data(), owner};
}

}  // namespace kv::python
