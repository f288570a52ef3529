// The instances of decode.h that are compiled; all other cases take attend_simple.h.
#pragma once

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

// Calls call(DecodeBlock()) for each instance of a list, those of few queries first: 1 or 4 for f32, else 8 or 16.
template <class... Pairs, class Call>
void visit_instances(CodecList<Pairs...>, Call call) {
  const auto visit = [&]<int kHeadDim, class K, class V>(CodecPair<K, V>) {
    constexpr int kFew = std::is_same_v<K, F32> ? 1 : 8, kMany = std::is_same_v<K, F32> ? 4 : 16;
    call(DecodeBlock<K, V, kHeadDim, kFew>());
    // 16 queries of 256 elements would not fit into the registers.
    if constexpr (kMany * kHeadDim < 16 * 256) call(DecodeBlock<K, V, kHeadDim, kMany>());
  };
  (visit.template operator()<64>(Pairs()), ...);
  (visit.template operator()<128>(Pairs()), ...);
  (visit.template operator()<256>(Pairs()), ...);
}

// The list's smallest block that holds all queries, else its largest; without a kernel if none is for these rows.
template <class List>
Instance find_in(const Layout& layout, int queries) {
  Instance found{};
  const auto offer = [&]<class K, class V, int kDim, int kMost>(DecodeBlock<K, V, kDim, kMost> block) {
    const bool fits = layout.head_dim == kDim && K::stores(layout.k.encoding) && V::stores(layout.v.encoding);
    if (fits && found.queries < queries)
      found = {decode<decltype(block)>, block.shared_bytes(), kMost, block.kTakesTail};
  };
  visit_instances(List(), offer);
  return found;
}

}  // namespace kv::cuda
