// Heads of encoded rows (harness/gpu_check/paged_head.h) in the formats of unit.h.
#pragma once

#include "harness/gpu_check/paged_head.h"
#include "tests/kernels/format/unit.h"

namespace kv::test {

using gpu_check::Bytes;
using gpu_check::CodecPair;
using gpu_check::difference;
using gpu_check::kContiguous;
using gpu_check::kOdd;
using gpu_check::kPaged;
using gpu_check::kRowMajor;
using gpu_check::kTiny;
using gpu_check::layout_of;
using gpu_check::PagedHead;
using gpu_check::Placing;
using gpu_check::Pool;
using gpu_check::same;

inline CodecPair kivi(int bits, int group = 32) { return {channel(bits, group), token(bits, true)}; }

}  // namespace kv::test
