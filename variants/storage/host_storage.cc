// The storage's functions, by the CPU's kernels.
#include "variants/storage/host_storage.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

#include "kernels/encode.h"
#include "kernels/piece_order.h"
#include "kernels/threads.h"
#include "variants/core/scratch.h"
#include "variants/storage/streamed_decode.h"
#include "variants/storage/unit_batch.h"

namespace kv {
namespace {

int64_t rows_of(const HeadQueries& p) { return p.visible + p.n - 1; }

// K, then V, each [rows, head_dim].
void decode_span(const Span& span, int head_dim, float* to) {
  decode_rows(span.k, head_dim, 0, span.rows, to);
  decode_rows(span.v, head_dim, 0, span.rows, to + span.rows * head_dim);
}

}  // namespace

HostStorage::HostStorage(const StorageContext& context) : context_(context) {
  const std::string& function = context.codec.function;
  if (function.empty()) return;
  if (!open_function) throw std::invalid_argument("python_codec: no function in Python can be called here");
  functions_ = open_function(function);
}

void HostStorage::store(std::span<const NewRows> rows) {
  for (const NewRows& in : rows) in.residual ? store_through_residual(in) : store_slots(in);
}

NewRows HostStorage::recoded(NewRows in) {
  const int64_t values = std::ssize(in.heads) * in.n * context_.head_dim;
  recoded_.assign(in.k, in.k + values);
  const bool is_latent = in.v == in.k;
  if (!is_latent) recoded_.insert(recoded_.end(), in.v, in.v + values);
  const auto began = std::chrono::steady_clock::now();
  const int64_t bytes = functions_->recode(recoded_, context_.head_dim);
  context_.memory.count_call(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  context_.memory.count_codes(std::ssize(recoded_), bytes);
  in.k = recoded_.data();
  in.v = recoded_.data() + (is_latent ? 0 : values);
  return in;
}

void HostStorage::store_slots(const NewRows& in) {
  const int heads = static_cast<int>(in.heads.size());
  const int64_t d = context_.head_dim;
  const NewRows stored = functions_ ? recoded(in) : in;  // the policy sees rows as they came
#pragma omp parallel if (worth_threads(in.n * heads * d, kParallelElements))
  {
    UnitBatch batch(context_.unit, context_.head_dim);
#pragma omp for schedule(static)
    for (int head = 0; head < heads; ++head) {
      Retention& policy = *in.heads[static_cast<size_t>(head)];
      for (int64_t i = 0; i < in.n; ++i) {
        const int64_t row = (head * in.n + i) * d;
        const int64_t slot = policy.admit({in.k + row, static_cast<size_t>(d)});
        batch.add(context_.placement.at(in.sequence, in.layer, head, slot), stored.k + row, stored.v + row);
      }
    }
    batch.flush();
  }
}

void HostStorage::store_through_residual(const NewRows& in) {
  const UnitLayout& unit = context_.unit;
  const int heads = static_cast<int>(in.heads.size()), head_dim = context_.head_dim;
  ResidualBuffer& residual = *in.residual;
  const bool waits = ResidualBuffer::waits(context_.codec);
  const RowUnits of = context_.codec.units();
#pragma omp parallel if (worth_threads(in.n * heads * head_dim, kParallelElements))
  {
    UnitBatch raw(ResidualBuffer::layout(head_dim, unit.bytes[kVData] == 0), head_dim), units(unit, head_dim);
    std::vector<float> k(static_cast<size_t>(unit.rows * head_dim)), v(k.size());
    std::vector<float> centred(context_.codec.mean_rows > 0 ? static_cast<size_t>(in.n * head_dim) : 0);
#pragma omp for schedule(static)
    for (int head = 0; head < heads; ++head) {
      Retention& policy = *in.heads[static_cast<size_t>(head)];
      for (int64_t i = 0; i < in.n; ++i) {
        const int64_t row = (head * in.n + i) * head_dim;
        const int64_t token = in.first + i, slot = policy.admit({in.k + row, static_cast<size_t>(head_dim)});
        const float* key = in.k + row;
        if (!centred.empty()) key = residual.without_mean(head, token, key, centred.data() + i * head_dim);
        if (slot >= of.first && !waits) {
          units.add(context_.placement.at(in.sequence, in.layer, head, slot - of.first), key, in.v + row);
          continue;
        }
        raw.add(residual.address(head, token), key, in.v + row);
        if (token + 1 == context_.codec.mean_rows) {
          raw.flush();
          residual.remove_mean(head);
        }
        // The unit that has just become older than the residual rows.
        const int64_t full = of.encoded(token);
        if (of.encoded(token + 1) == full) continue;
        raw.flush();
        residual.get(head, of.first + full * unit.rows, unit.rows, k.data(), v.data());
        units.add(context_.placement.at(in.sequence, in.layer, head, residual.place(full)), k.data(),
                  v.data());
        units.flush();
      }
      if (!centred.empty()) raw.flush();  // the next head's keys take their place
    }
    raw.flush();
    units.flush();
  }
  residual.advance(in.first + in.n);
}

void HostStorage::view(std::span<std::span<const Span>> views, std::span<const Retention* const> heads) {
  if (context_.codec.read_copy) decode(views, copy_, decoded_);
  if (context_.rotated) context_.rotated->rotate_keys(views, heads);
}

// prefill=full: rows in f32 that the codec stores otherwise.
bool HostStorage::reads_own_rows(const HeadQueries& p) const {
  return !context_.codec.read_copy && !context_.rotated && !p.spans.empty() &&
         p.spans.front().k.encoding == Encoding{} && context_.codec.k != Encoding{};
}

void HostStorage::attend(std::span<const HeadQueries> problems, const StreamedRows* streamed) {
  for (const HeadQueries& p : problems) {
    (!is_prefill(p) ? decoded_steps_ : reads_own_rows(p) ? prefilled_own_ : prefilled_) = true;
    if (context_.codec.mean_rows > 0 && (p.sink_logits || p.score_cap != 0.0f))
      throw std::invalid_argument("k_mean=removed moves all scores of a query alike, which " +
                                  std::string(p.sink_logits ? "sink logits" : "soft-capping") +
                                  " would notice: this model needs k_mean=kept");
  }
  if (streamed) return attend_streamed(problems, *streamed);
  const size_t bytes = attention_workspace_bytes(problems, context_.head_dim);
  kv::attend(problems, context_.head_dim, fit(context_.memory, workspace_, bytes));
}

void HostStorage::attend_streamed(std::span<const HeadQueries> problems, const StreamedRows& streamed) {
  if (!pieces_take_any_order(problems) || context_.codec.read_copy)
    return attend_in_order(problems, streamed);
  std::byte* workspace =
      fit(context_.memory, workspace_, StreamedDecode::workspace_bytes(problems, context_.head_dim));
  StreamedDecode(problems, context_.unit, context_.kv_heads, streamed.rows, context_.head_dim, workspace)
      .run([&](const PieceVisitor& visit, const OtherWork& meanwhile) {
        context_.placement.stream(streamed.layer, streamed.sequences, visit, meanwhile);
      });
}

// First what comes in pieces, in the order in which it comes, then what is in memory.
void HostStorage::attend_in_order(std::span<const HeadQueries> problems, const StreamedRows& streamed) {
  const size_t bytes = PiecewiseAttention::workspace_bytes(problems, context_.head_dim);
  PiecewiseAttention attention(problems, context_.head_dim, fit(context_.memory, workspace_, bytes));
  std::vector<PiecewiseAttention::Piece> work;
  std::vector<Span> spans;
  std::vector<std::span<const Span>> views;
  const auto visit = [&](size_t input, const Piece& piece) {
    find_spans(piece, context_.unit, context_.kv_heads, spans);
    views.clear();
    for (const Span& span : spans) views.push_back({&span, 1});
    if (context_.codec.read_copy) decode(views, piece_copy_, piece_decoded_);
    const int64_t begin = piece.first_unit * context_.unit.rows;
    const int64_t end = begin + piece.units * context_.unit.rows;
    work.clear();
    for (size_t head = 0; head < views.size(); ++head)
      work.push_back({input * views.size() + head, views[head], begin, end});
    attention.run(work);
  };
  context_.placement.stream(streamed.layer, streamed.sequences, visit);
  work.clear();
  for (size_t i = 0; i < problems.size(); ++i) {
    const int64_t begin = streamed.rows[i / static_cast<size_t>(context_.kv_heads)];
    work.push_back({i, problems[i].spans, begin, rows_of(problems[i])});
  }
  attention.run(work);
  attention.finish();
}

// read=copy: every row decoded to f32 in the workspace; the views then show the copy, through `decoded`.
void HostStorage::decode(std::span<std::span<const Span>> views, Block& copy, std::vector<Span>& decoded) {
  const int head_dim = context_.head_dim;
  const int64_t row_bytes = head_dim * static_cast<int64_t>(sizeof(float));
  std::vector<Span> encoded;
  for (const auto& spans : views) encoded.insert(encoded.end(), spans.begin(), spans.end());
  int64_t rows = 0;
  for (const Span& span : encoded) rows += span.rows;
  std::byte* to = fit(context_.memory, copy, static_cast<size_t>(2 * rows * row_bytes));
  decoded.clear();
  std::vector<float*> target;
  for (const Span& span : encoded) {
    decoded.push_back({.k = {.data = to, .stride = row_bytes},
                       .v = {.data = to + span.rows * row_bytes, .stride = row_bytes},
                       .rows = span.rows});
    target.push_back(reinterpret_cast<float*>(to));
    to += 2 * span.rows * row_bytes;
  }
#pragma omp parallel for schedule(dynamic, 1)
  for (size_t i = 0; i < encoded.size(); ++i) decode_span(encoded[i], head_dim, target[i]);
  size_t first = 0;
  for (auto& spans : views) {
    spans = std::span(decoded).subspan(first, spans.size());
    first += spans.size();
  }
}

// Zeroed room in the workspace for the weights of each scored problem's rows.
void HostStorage::accumulate_weights(std::span<HeadQueries> problems, std::span<Retention* const> scored) {
  int64_t rows = 0;
  for (size_t i = 0; i < problems.size(); ++i) rows += scored[i] ? rows_of(problems[i]) : 0;
  float* next =
      reinterpret_cast<float*>(fit(context_.memory, weights_, static_cast<size_t>(rows) * sizeof(float)));
  std::fill_n(next, rows, 0.0f);
  for (size_t i = 0; i < problems.size(); ++i) {
    if (!scored[i]) continue;
    problems[i].attention_weights = next;
    next += rows_of(problems[i]);
  }
}

void HostStorage::observe_weights(std::span<const HeadQueries> problems, std::span<Retention* const> scored) {
  for (size_t i = 0; i < problems.size(); ++i) {
    if (scored[i])
      scored[i]->observe({problems[i].attention_weights, static_cast<size_t>(scored[i]->slots())});
  }
}

std::string HostStorage::kernel() const {
  std::string all;
  const auto add = [&](const std::string& name) { all += (all.empty() ? "" : " + ") + name; };
  if (prefilled_own_) add(attention_kernel_name({}, {}, kPrefillTokens) + " of unstored rows");
  if (prefilled_) add(kernel_of(kPrefillTokens));
  if (decoded_steps_ || all.empty()) add(kernel_of(1));
  return all;
}

// For steps of so many tokens. Results contain these words.
std::string HostStorage::kernel_of(int64_t tokens) const {
  const Codec& codec = context_.codec;
  const Encoding v = codec.read_copy ? Encoding{} : codec.v;
  if (context_.rotated) return attention_kernel_name({}, v, tokens) + " of rotated copy";
  if (codec.read_copy) return attention_kernel_name({}, {}, tokens) + " of decoded copy";
  return attention_kernel_name(codec.k, codec.v, tokens, codec.arithmetic);
}

}  // namespace kv
