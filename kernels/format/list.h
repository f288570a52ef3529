// The one list of formats. A new format is a file beside this one, a name in span.h and a line here.
#pragma once

#include "kernels/format/bf16.h"
#include "kernels/format/channel.h"
#include "kernels/format/f16.h"
#include "kernels/format/f32.h"
#include "kernels/format/fp8.h"
#include "kernels/format/q4_0.h"
#include "kernels/format/q8_0.h"
#include "kernels/format/token.h"

namespace kv {

template <class... Formats>
struct FormatList {};

// In the order of enum Format.
using AllFormats = FormatList<F32Format, F16Format, Bf16Format, Fp8E4M3Format, Fp8E5M2Format, Q8_0Format,
                              Q4_0Format, TokenFormat, ChannelFormat>;

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
