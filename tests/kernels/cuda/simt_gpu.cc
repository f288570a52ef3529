#include "tests/kernels/cuda/simt_gpu.h"

#include "kernels/cuda/attention/attend_simple.h"
#include "kernels/cuda/attention/evict.h"
#include "kernels/cuda/attention/read_all.h"
#include "kernels/cuda/attention/read_back.h"
#include "kernels/cuda/encode/append.h"

namespace kv::test {
namespace {

int blocks(int queries, int of) { return (queries + of - 1) / of; }

}  // namespace

void SimtGpu::append(const cuda::AppendParams& params, int jobs, int most_units) {
  ++appends;
  launch({cuda::append_blocks(params.layout, most_units), jobs}, cuda::kAppendWarps, 0,
         [=] { cuda::append_rows(params); });
}
void SimtGpu::copy_rows(const cuda::CopyParams& params, int jobs, int most_rows) {
  launch({blocks(most_rows, cuda::kCopyWarps), jobs}, cuda::kCopyWarps, 0, [=] { cuda::copy_rows(params); });
}
void SimtGpu::attend_simple(const cuda::AttendParams& params, int problems, int most_splits,
                            int most_queries) {
  launch({blocks(most_queries, cuda::kAttendWarps), problems, most_splits}, cuda::kAttendWarps, 0,
         [=] { cuda::attend_simple(params); });
}
cuda::Instance SimtGpu::decode_instance(const cuda::Layout& layout, int queries) const {
  return cuda::find_instance(layout, queries, most_shared_bytes);
}
void SimtGpu::decode(const cuda::DecodeParams& params, int items) {
  const cuda::Instance found = decode_instance(params.layout, params.merge.most_queries);
  if (!found.kernel) throw std::logic_error("no decode kernel fits these rows");
  launch({items, blocks(params.merge.most_queries, found.queries)}, cuda::kDecodeWarps,
         static_cast<size_t>(found.shared_bytes), [=] { found.kernel(params); });
}
void SimtGpu::merge(const cuda::MergeParams& params, int problems) {
  launch({blocks(params.most_queries, cuda::kMergeQueries), problems}, cuda::kMergeWarps, 0,
         [=] { cuda::merge_splits(params); });
}
void SimtGpu::add_attention_weights(const cuda::AttentionWeightsParams& params, int problems, int most_rows) {
  const int threads = cuda::kAttendWarps * simt::kWarp;
  launch({(most_rows + threads - 1) / threads, problems}, cuda::kAttendWarps, 0,
         [=] { cuda::add_attention_weights(params); });
}
void SimtGpu::choose_slots(const cuda::EvictParams& params, int heads) {
  choices += heads;
  launch({heads}, cuda::kEvictWarps, cuda::kEvictSharedBytes, [=] { cuda::choose_slot(params); });
}

void SimtGpu::read_all(const cuda::ReadParams& params, int blocks) {
  launch({blocks}, cuda::kReadThreads / simt::kWarp, 0, [=] { cuda::read_all(params); });
}

}  // namespace kv::test
