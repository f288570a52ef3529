// Rows in a GPU's memory, worked on by its kernels. The bookkeeping of the other stages (slots, block tables)
// stays on the host, but for scores that come from attention and what is chosen by them; queries, new rows
// and outputs travel with each call. Rows that are not in the GPU's memory pass through it piece by piece,
// the next ones on their way while kernels read others.
#pragma once

#include "variants/storage/gpu_append.h"
#include "variants/storage/gpu_attention.h"
#include "variants/storage/storage.h"

namespace kv {

class GpuStorage : public Storage {
 public:
  // The memory has a GPU. It holds what this needs while it works, as workspace.
  explicit GpuStorage(const StorageContext& context);

  // Why rows of this head_dim cannot be kept on a GPU, or empty if they can.
  static std::string unsupported_reason(int head_dim);

  void store(std::span<const NewRows> rows) override { append_.store(rows); }
  void view(std::span<std::span<const Span>> views, std::span<const Retention* const> heads) override;
  void attend(std::span<const HeadQueries> problems, const StreamedRows* streamed) override;
  void accumulate_weights(std::span<HeadQueries> problems, std::span<Retention* const> scored) override;
  void observe_weights(std::span<const HeadQueries> problems, std::span<Retention* const> scored) override;
  std::vector<Span> read_back(std::vector<Span> spans) override;
  void write_rows(Writer& to, const std::byte* rows, size_t bytes) override;
  void read_rows(Reader& from, std::byte* rows, size_t bytes) override;
  std::string kernel() const override;

 private:
  float* zeroed_weights(int64_t count);
  std::span<const float> weights_on_host(const float* weights, int64_t count);

  const StorageContext context_;
  cuda::Gpu& gpu_;
  GpuAppend append_;
  GpuAttention attention_;
  RotatedKeys rotated_keys_;              // the step in progress, if keys are rotated
  Block host_weights_, weights_;          // attention weights of the host and of the GPU
  std::vector<std::byte> read_, staged_;  // the host's
};

}  // namespace kv
