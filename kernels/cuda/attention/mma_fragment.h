// The fragments of a matrix product: which of a row's words and elements a lane of a warp holds.
#pragma once

#include "kernels/cuda/attention/words.h"

namespace kv::cuda {

// Which of a row's words and elements a lane has. With g = lane / 4 and t = lane % 4: lane t of the four that
// share a row of K has a quarter of each block's words; lane g of the eight that share a row of V has an
// eighth, which may be half a word.
template <class Codec, int kHeadDim>
struct MmaFragment {
  static constexpr int kBlocks = Codec::blocks(kHeadDim);
  static constexpr int kPairs = 16 / Codec::kBits;  // of a word
  static constexpr int kWords = words_of(Codec::kBits, kHeadDim) / kBlocks;
  static constexpr int kKeyWords = kWords / 4, kValueHalves = kWords / 4;
  static constexpr int kBlockPairs = kKeyWords * kPairs;  // a lane's; for V, its elements
  static_assert(kKeyWords > 0 && kBlockPairs * kBlocks == kHeadDim / 8);

  // The element in the lower or upper half of the lane's pair of K.
  KV_DEVICE static int key_element(int t, int pair, int upper) {
    const int in_block = pair % kBlockPairs;
    const int word = pair / kBlockPairs * kWords + t * kKeyWords + in_block / kPairs;
    return Codec::element(kHeadDim, word, in_block % kPairs + upper * kPairs);
  }
  // The lane's element i of V.
  KV_DEVICE static int value_element(int g, int i) {
    const int in_block = i % kBlockPairs;
    const int half = i / kBlockPairs * kWords * 2 + g * kValueHalves + in_block / kPairs;
    return Codec::element(kHeadDim, half / 2, half % 2 * kPairs + in_block % kPairs);
  }
};

}  // namespace kv::cuda
