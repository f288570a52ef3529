// From encodings known at run time to the instances of decode.h that are compiled: which there are, and which
// fits. What fits none takes attend_simple.h.
#pragma once

#include "kernels/cuda/decode.h"

namespace kv::cuda {

template <class K_, class V_>
struct CodecPair {
  using K = K_;
  using V = V_;
};
template <class... Pairs>
struct CodecList {};

// One source file each, so that they compile side by side.
using PlainCodecs = CodecList<CodecPair<F32, F32>, CodecPair<F16, F16>, CodecPair<Bf16, Bf16>>;
using Fp8Codecs = CodecList<CodecPair<E4m3, E4m3>, CodecPair<E5m2, E5m2>>;
using BlockCodecs = CodecList<CodecPair<Q8, Q8>, CodecPair<Q4, Q4>>;
using TokenCodecs =
    CodecList<CodecPair<Token<8>, Token<8>>, CodecPair<Token<4>, Token<4>>, CodecPair<Token<2>, Token<2>>>;
using KiviCodecs = CodecList<CodecPair<Channel<8>, Token<8>>, CodecPair<Channel<4>, Token<4>>,
                             CodecPair<Channel<2>, Token<2>>>;

// What a launch needs to know of an instance.
struct Instance {
  void (*kernel)(DecodeParams);
  int shared_bytes;
  int heads;  // query heads of a block
};

template <class Pair, int kHeadDim, int kHeads>
Instance instance() {
  using K = typename Pair::K;
  using V = typename Pair::V;
  return {decode<K, V, kHeadDim, kHeads>, decode_shared_bytes<K, V, kHeadDim, kHeads>(), kHeads};
}

template <class Pair>
Instance instance_for(int head_dim, int group) {
  switch (head_dim) {
    case 64:
      return group == 1 ? instance<Pair, 64, 1>() : instance<Pair, 64, 4>();
    case 128:
      return group == 1 ? instance<Pair, 128, 1>() : instance<Pair, 128, 4>();
    case 256:
      return group == 1 ? instance<Pair, 256, 1>() : instance<Pair, 256, 4>();
    default:
      return {};
  }
}

// The list's instance for these rows and this many query heads a kv head; without a kernel where it has none.
template <class... Pairs>
Instance find_instance(CodecList<Pairs...>, const Layout& layout, int group) {
  Instance found{};
  const auto try_pair = [&]<class Pair>(Pair) {
    if (Pair::K::stores(layout.k.encoding) && Pair::V::stores(layout.v.encoding)) {
      found = instance_for<Pair>(layout.head_dim, group);
    }
  };
  (try_pair(Pairs()), ...);
  return found;
}

// For every list, in the file that compiles it.
Instance find_plain(const Layout& layout, int group);
Instance find_fp8(const Layout& layout, int group);
Instance find_block(const Layout& layout, int group);
Instance find_token(const Layout& layout, int group);
Instance find_kivi(const Layout& layout, int group);

}  // namespace kv::cuda
