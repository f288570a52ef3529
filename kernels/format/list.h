// The one list of formats. A new format is a file beside this one, a name in span.h and a line here; one of ggml_levels.h is a
// line there in place of both.
#pragma once

#include <iterator>
#include <utility>

#include "kernels/format/bf16.h"
#include "kernels/format/channel.h"
#include "kernels/format/f16.h"
#include "kernels/format/f32.h"
#include "kernels/format/fp8.h"
#include "kernels/format/ggml_levels.h"
#include "kernels/format/mx.h"
#include "kernels/format/nvfp4.h"
#include "kernels/format/q4_0.h"
#include "kernels/format/q8_0.h"
#include "kernels/format/token.h"
#include "kernels/format/turbo.h"
#include "kernels/format/vq.h"

namespace kv {

template <class... Formats>
struct FormatList {};

template <class... A, class... B>
FormatList<A..., B...> joined(FormatList<A...>, FormatList<B...>);
template <size_t... kIndex>
FormatList<GgmlLevels<kIndex>...> level_blocks(std::index_sequence<kIndex...>);

// Both in the order of enum Format. A GPU has kernels for the former alone.
using GpuFormats = FormatList<F32Format, F16Format, Bf16Format, Fp8E4M3Format, Fp8E5M2Format, Q8_0Format,
                              Q4_0Format, TokenFormat, ChannelFormat>;
using LevelFormats = decltype(joined(
    FormatList<MxFp8E4M3Format, MxFp8E5M2Format, MxFp4Format, NvFp4Format, TurboFormat>(),
    joined(level_blocks(std::make_index_sequence<std::size(kLevelBlocks)>()), FormatList<VqFormat>())));
using AllFormats = decltype(joined(GpuFormats(), LevelFormats()));

// From a format at run time to loops compiled for it: calls call(F()) with the struct of `format`. False, and
// nothing called, if no format has that number.
#ifdef __CUDACC__
#pragma nv_exec_check_disable
#endif
template <class... Formats, class Call>
KV_HD bool visit_format(FormatList<Formats...>, Format format, Call&& call) {
  return ((Formats::kFormat == format && (call(Formats()), true)) || ...);
}
#ifdef __CUDACC__
#pragma nv_exec_check_disable
#endif
template <class Call>
KV_HD bool visit_format(Format format, Call&& call) {
  return visit_format(AllFormats(), format, call);
}

}  // namespace kv
