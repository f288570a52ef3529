// From encodings known at run time to the instances of decode.h that are compiled: which there are, and which
// fits. What fits none takes attend_simple.h.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention/decode.h"
#include "kernels/cuda/attention/instance.h"

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
using BlockCodecs = CodecList<CodecPair<Q8, Q8>, CodecPair<Q4, Q4>, CodecPair<Q8, Q4>>;
using TokenCodecs =
    CodecList<CodecPair<Token<8>, Token<8>>, CodecPair<Token<4>, Token<4>>, CodecPair<Token<2>, Token<2>>>;
using SymmetricCodecs =
    CodecList<CodecPair<Token<8, false>, Token<8, false>>, CodecPair<Token<4, false>, Token<4, false>>,
              CodecPair<Token<2, false>, Token<2, false>>>;
using KiviCodecs = CodecList<CodecPair<Channel<8>, Token<8>>, CodecPair<Channel<4>, Token<4>>,
                             CodecPair<Channel<2>, Token<2>>>;

template <class K, class V, int kHeadDim, int kQueries>
using BlockOf = DecodeBlock<K, V, kHeadDim,
                            std::conditional_t<std::is_same_v<K, F32>, FloatLane<kHeadDim, kQueries>,
                                               DecodeLane<K, V, kHeadDim, kQueries>>>;

template <class Pair, int kHeadDim, int kQueries>
Instance instance() {
  using K = typename Pair::K;
  using V = typename Pair::V;
  constexpr int kBytes = BlockOf<K, V, kHeadDim, kQueries>::kSharedBytes;
  if constexpr (std::is_same_v<K, F32>) {
    return {decode_f32<kHeadDim, kQueries>, kBytes, kQueries};
  } else {
    return {decode<K, V, kHeadDim, kQueries>, kBytes, kQueries};
  }
}

// The smallest block that holds all queries, if there is one; of f32 1 or 4, else 8 or 16.
template <class Pair, int kHeadDim>
Instance instance_for(int queries) {
  if constexpr (std::is_same_v<typename Pair::K, F32>) {
    return queries == 1 ? instance<Pair, kHeadDim, 1>() : instance<Pair, kHeadDim, 4>();
  } else if constexpr (kHeadDim > 128) {
    return instance<Pair, kHeadDim, 8>();  // 16 would not fit into the registers
  } else {
    return queries <= 8 ? instance<Pair, kHeadDim, 8>() : instance<Pair, kHeadDim, 16>();
  }
}

template <class Pair>
Instance instance_for(int head_dim, int queries) {
  switch (head_dim) {
    case 64:
      return instance_for<Pair, 64>(queries);
    case 128:
      return instance_for<Pair, 128>(queries);
    case 256:
      return instance_for<Pair, 256>(queries);
    default:
      return {};
  }
}

// The list's instance for these rows and this many queries a kv head; without a kernel where it has none.
template <class... Pairs>
Instance find_instance(CodecList<Pairs...>, const Layout& layout, int queries) {
  Instance found{};
  const auto try_pair = [&]<class Pair>(Pair) {
    if (Pair::K::stores(layout.k.encoding) && Pair::V::stores(layout.v.encoding)) {
      found = instance_for<Pair>(layout.head_dim, queries);
    }
  };
  (try_pair(Pairs()), ...);
  return found;
}

// The function of instance.h that finds among a list's instances, and so compiles them.
#define KV_COMPILE_INSTANCES(find, Codecs)                               \
  kv::cuda::Instance kv::cuda::find(const Layout& layout, int queries) { \
    return find_instance(Codecs(), layout, queries);                     \
  }

}  // namespace kv::cuda
