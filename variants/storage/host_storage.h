// Rows in the host's memory, worked on by the CPU's kernels.
#pragma once

#include "variants/core/user_function.h"
#include "variants/storage/storage.h"

namespace kv {

class HostStorage : public Storage {
 public:
  // Throws std::invalid_argument where the codec has functions that cannot be called.
  explicit HostStorage(const StorageContext& context);

  void store(std::span<const NewRows> rows) override;
  void view(std::span<std::span<const Span>> views, std::span<const Retention* const> heads) override;
  void attend(std::span<const HeadQueries> problems, const StreamedRows* streamed) override;
  void accumulate_weights(std::span<HeadQueries> problems, std::span<Retention* const> scored) override;
  void observe_weights(std::span<const HeadQueries> problems, std::span<Retention* const> scored) override;
  std::vector<Span> read_back(std::vector<Span> spans) override { return spans; }
  void write_rows(Writer& to, const std::byte* rows, size_t bytes) override { to.write(rows, bytes); }
  void read_rows(Reader& from, std::byte* rows, size_t bytes) override { from.read(rows, bytes); }
  std::string kernel() const override;

 private:
  // `in` with its rows as they decode, in `recoded_`.
  NewRows recoded(NewRows in);
  void store_slots(const NewRows& in);
  void store_through_residual(const NewRows& in);
  void attend_streamed(std::span<const HeadQueries> problems, const StreamedRows& streamed);
  void attend_in_order(std::span<const HeadQueries> problems, const StreamedRows& streamed);
  void decode(std::span<std::span<const Span>> views, Block& copy, std::vector<Span>& decoded);
  std::string kernel_of(int64_t tokens) const;
  bool reads_own_rows(const HeadQueries& p) const;

  const StorageContext context_;
  std::vector<Span> decoded_,
      piece_decoded_;        // read=copy: what the views of a step and of a piece point into
  Block copy_, piece_copy_;  // read=copy: the decoded rows of both
  Block workspace_, weights_;
  std::shared_ptr<UserFunction> functions_;  // the codec's, or null
  std::vector<float> recoded_;               // K, then V
  bool prefilled_own_ = false, prefilled_ = false,
       decoded_steps_ = false;  // paths of attention that have run
};

}  // namespace kv
