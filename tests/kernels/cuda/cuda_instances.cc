// Prints a line of JSON for each instance of decode.h and chunk.h, for cuda_report_test.py: a block's shared memory, and a tile's bytes and
// matrix products. The compiler's report has none of them.
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <typeinfo>

#include "harness/gpu_check/codecs.h"
#include "kernels/cuda/attention/dispatch.h"

namespace kv::cuda {

// The demangled name differs from the kernel's by the word "Name" alone.
template <class Block>
struct decodeName {};

template <class Block>
std::string name_of() {
  char* text = abi::__cxa_demangle(typeid(decodeName<Block>).name(), nullptr, nullptr, nullptr);
  std::string name = text;
  std::free(text);
  return name.erase(name.find("Name<"), 4);
}

template <class K, class V>
const char* codec() {
  for (const gpu_check::CodecChoice& c : gpu_check::codecs()) {
    if (K::stores(c.codec.k) && V::stores(c.codec.v)) return c.name.c_str();
  }
  return "unknown";
}

template <template <class, class, int, int, int...> class Kind, class K, class V, int kHeadDim, int kQueries,
          int... kRest>
void print(Kind<K, V, kHeadDim, kQueries, kRest...>) {
  using Block = Kind<K, V, kHeadDim, kQueries, kRest...>;
  using Lane = typename Block::Lane;
  using Shape = typename Block::Shape;
  int products = 0;
  if constexpr (!std::is_same_v<K, F32>) {
    products = Shape::kRows / 8 * (kHeadDim / 16) * (Lane::Query::kMatrices + Lane::Weights::kMatrices);
    if (Lane::kScalesQueries) products += kHeadDim / 16 * Lane::Query::kMatrices;  // with the zero points
  }
  std::printf(
      "{\"name\": \"%s\", \"codec\": \"%s\", \"head_dim\": %d, \"queries\": %d, \"stages\": %d, \"rows\": "
      "%d, \"bytes\": %d, "
      "\"products\": %d, \"shared_bytes\": %d}\n",
      name_of<Block>().c_str(), codec<K, V>(), kHeadDim, Block::kBlockQueries, Block::kStages, Shape::kRows,
      Shape::kBytes, products, Block::shared_bytes());
}

template <class... Lists>
void print_all() {
  (visit_instances(Lists(), [](auto block) { print(block); }), ...);
}

}  // namespace kv::cuda

int main() {
  using namespace kv::cuda;
  print_all<PlainCodecs, Fp8Codecs, BlockCodecs, TokenCodecs, SymmetricCodecs, KiviCodecs>();
}
