// The instances of decode.h and chunk.h that are compiled; all other cases take attend_simple.h.
#pragma once

#include <algorithm>

#include "kernels/cuda/attention/chunk.h"
#include "kernels/cuda/attention/decode.h"
#include "kernels/cuda/attention/instance.h"

namespace kv::cuda {

template <class K, class V = K>
struct CodecPair {};
template <class... Pairs>
struct CodecList {};

// One source file each, so that they compile side by side.
using PlainCodecs = CodecList<CodecPair<F32>, CodecPair<F16>, CodecPair<Bf16>>;
using Fp8Codecs = CodecList<CodecPair<E4m3>, CodecPair<E5m2>>;
using BlockCodecs = CodecList<CodecPair<Q8>, CodecPair<Q4>, CodecPair<Q8, Q4>>;
using TokenCodecs = CodecList<CodecPair<Token<8>>, CodecPair<Token<4>>, CodecPair<Token<2>>>;
using SymmetricCodecs =
    CodecList<CodecPair<Token<8, false>>, CodecPair<Token<4, false>>, CodecPair<Token<2, false>>>;
using KiviCodecs = CodecList<CodecPair<Channel<8>, Token<8>>, CodecPair<Channel<4>, Token<4>>,
                             CodecPair<Channel<2>, Token<2>>>;

// Calls call(Block()) for each instance of a list, those of few queries first: 1 or 4 for f32, else 8, 16 and a chunk's. Behind
// one of few queries that needs more shared memory than the smallest GPUs have comes the same with a stage less.
template <class... Pairs, class Call>
void visit_instances(CodecList<Pairs...>, Call call) {
  const auto visit = [&]<int kHeadDim, class K, class V>(CodecPair<K, V>) {
    constexpr int kFew = std::is_same_v<K, F32> ? 1 : 8, kMany = std::is_same_v<K, F32> ? 4 : 16;
    using Few = DecodeBlock<K, V, kHeadDim, kFew>;
    call(Few());
    if constexpr (Few::shared_bytes() > kLeastSharedBytes)
      call(DecodeBlock<K, V, kHeadDim, kFew, TileShape<K, V, kHeadDim>::kStages - 1>());
    // 16 queries of 256 elements would not fit into the registers.
    constexpr bool kManyFit = kMany * kHeadDim < 16 * 256;
    if constexpr (kManyFit) call(DecodeBlock<K, V, kHeadDim, kMany>());
    using Chunk = ChunkBlock<K, V, kHeadDim, (kManyFit ? kMany : kFew)>;
    if constexpr (!std::is_same_v<K, F32>) call(Chunk());
  };
  (visit.template operator()<64>(Pairs()), ...);
  (visit.template operator()<128>(Pairs()), ...);
  (visit.template operator()<256>(Pairs()), ...);
}

// Of the blocks that fit into `most_shared_bytes`, the smallest that holds all queries, else the largest; without a kernel if
// none is for these rows.
template <class List>
Instance find_in(const Layout& layout, int queries, int most_shared_bytes) {
  Instance found{};
  const auto offer = [&]<template <class, class, int, int, int...> class Block, class K, class V, int kDim,
                         int kQueries, int... kRest>(Block<K, V, kDim, kQueries, kRest...> block) {
    constexpr int kMost = block.kBlockQueries;
    const bool fits = layout.head_dim == kDim && K::stores(layout.k.encoding) &&
                      V::stores(layout.v.encoding) && block.shared_bytes() <= most_shared_bytes &&
                      queries >= block.kLeastQueries;
    if (fits && found.queries < std::min(queries, kMost))
      found = {decode<decltype(block)>, block.shared_bytes(), kMost, block.kItemRows, block.kTakesTail};
  };
  visit_instances(List(), offer);
  return found;
}

}  // namespace kv::cuda
