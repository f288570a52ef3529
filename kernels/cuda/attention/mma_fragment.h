// The fragments of a matrix product: which of a row's words and elements a lane of a warp holds.
#pragma once

#include "kernels/cuda/attention/words.h"

namespace kv::cuda {

// Which of a row's words and elements a lane has. With g = lane / 4 and t = lane % 4: of each 16 bytes of a row of K lane
// t of the four that share it has word t, and of a row of V lane g of eight has half a word. That is how
// simt::load_matrices delivers them. But keys whose channels have scales fall to lanes by two words next to each other,
// whose elements of one code are neighbours, and so are their scales.
template <class Codec, int kHeadDim>
struct MmaFragment {
  static constexpr int kBlocks = Codec::blocks(kHeadDim);
  static constexpr int kPairs = 16 / Codec::kBits;               // of a word
  static constexpr int kChunks = kHeadDim * Codec::kBits / 128;  // of 16 bytes
  static constexpr int kBlockChunks = kChunks / kBlocks;
  static constexpr int kBlockPairs = kBlockChunks * kPairs;  // a lane's; for V, its elements
  static constexpr bool kTwoWords = Codec::kScaling == Scaling::kChannel && kChunks > 1;
  static_assert(kBlockChunks > 0 && kBlockPairs * kBlocks == kHeadDim / 8);

  // The element in the lower or upper half of the lane's pair of K.
  KV_DEVICE static int key_element(int t, int pair, int upper) {
    if (kTwoWords)
      return Codec::element(kHeadDim, pair / (2 * kPairs) * 8 + 2 * t + upper, pair % (2 * kPairs));
    return Codec::element(kHeadDim, pair / kPairs * 4 + t, pair % kPairs + upper * kPairs);
  }
  // The lane's element i of V.
  KV_DEVICE static int value_element(int g, int i) {
    const int half = i / kPairs * 8 + g;
    return Codec::element(kHeadDim, half / 2, half % 2 * kPairs + i % kPairs);
  }
};

}  // namespace kv::cuda
