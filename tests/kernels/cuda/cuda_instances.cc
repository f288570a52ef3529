// Prints what the compiler's report cannot say of each instance of decode.h, a line of JSON each: the shared memory of a
// block, and of a tile its bytes and the matrix products that it takes. cuda_report_test.py reads it.
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <typeinfo>

#include "harness/gpu_check/scene.h"
#include "kernels/cuda/attention/dispatch.h"

namespace kv::cuda {

// Demangled, these differ from the kernels' names by the word "Name" alone.
template <class K, class V, int kHeadDim, int kQueries>
struct decodeName {};
template <int kHeadDim, int kQueries>
struct decode_f32Name {};

template <class T>
std::string name_of() {
  char* text = abi::__cxa_demangle(typeid(T).name(), nullptr, nullptr, nullptr);
  std::string name = text;
  std::free(text);
  return name.erase(name.find("Name<"), 4);
}

template <class Pair>
const char* codec() {
  for (const gpu_check::CodecChoice& c : gpu_check::codecs()) {
    if (Pair::K::stores(c.k) && Pair::V::stores(c.v)) return c.name.c_str();
  }
  return "unknown";
}

template <class Pair, int kHeadDim, int kQueries>
void print() {
  using K = typename Pair::K;
  using V = typename Pair::V;
  using Shape = TileShape<K, V, kHeadDim>;
  std::string name;
  int products = 0;
  if constexpr (std::is_same_v<K, F32>) {
    name = name_of<decode_f32Name<kHeadDim, kQueries>>();
  } else {
    using Lane = DecodeLane<K, V, kHeadDim, kQueries>;
    name = name_of<decodeName<K, V, kHeadDim, kQueries>>();
    products = Shape::kRows / 8 * (kHeadDim / 16) * (Lane::Query::kMatrices + Lane::Weights::kMatrices);
    if (Lane::kScalesQueries) products += kHeadDim / 16 * Lane::Query::kMatrices;  // with the zero points
  }
  std::printf(
      "{\"name\": \"%s\", \"codec\": \"%s\", \"head_dim\": %d, \"queries\": %d, \"rows\": %d, \"bytes\": %d, "
      "\"products\": %d, "
      "\"shared_bytes\": %d}\n",
      name.c_str(), codec<Pair>(), kHeadDim, kQueries, Shape::kRows, Shape::kBytes, products,
      BlockOf<K, V, kHeadDim, kQueries>::kSharedBytes);
}

template <class Pair, int kHeadDim>
void print_all() {
  if constexpr (std::is_same_v<typename Pair::K, F32>) {
    print<Pair, kHeadDim, 1>();
    print<Pair, kHeadDim, 4>();
  } else {
    print<Pair, kHeadDim, 8>();
    if constexpr (kHeadDim <= 128) print<Pair, kHeadDim, 16>();
  }
}

template <class... Pairs>
void print_list(CodecList<Pairs...>) {
  (print_all<Pairs, 64>(), ...);
  (print_all<Pairs, 128>(), ...);
  (print_all<Pairs, 256>(), ...);
}

}  // namespace kv::cuda

int main() {
  using namespace kv::cuda;
  print_list(PlainCodecs());
  print_list(Fp8Codecs());
  print_list(BlockCodecs());
  print_list(TokenCodecs());
  print_list(SymmetricCodecs());
  print_list(KiviCodecs());
}
