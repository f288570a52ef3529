#include "harness/gpu_check/problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "harness/gpu_check/numbers.h"

namespace kv::gpu_check {
namespace {

std::vector<float> numbers(size_t count, uint64_t seed) {
  std::vector<float> all(count);
  for (size_t i = 0; i < count; ++i) all[i] = normal_number(seed, static_cast<int64_t>(i));
  return all;
}

size_t size_of(const PagedHead& head) {
  return static_cast<size_t>(head.rows()) * static_cast<size_t>(head.layout.head_dim);
}

// A head's pages on the GPU. Every page's plane has memory of its own and of exact size, so that the sanitizers see an access
// outside.
std::vector<cuda::Page> mirrored(cuda::Gpu& gpu, const PagedHead& head, std::vector<DeviceBytes>& kept) {
  std::vector<cuda::Page> pages;
  for (size_t i = 0; i < head.pages.size(); ++i) {
    const cuda::Page& page = head.pages[i];
    const std::byte* from[] = {page.k, page.k_meta, page.v, page.v_meta};
    std::byte* to[4];
    for (size_t plane = 0; plane < 4; ++plane) {
      const size_t bytes = head.page_bytes(i)[plane];
      to[plane] = kept.emplace_back(gpu, bytes).as<std::byte>();
      if (bytes > 0) gpu.copy(to[plane], from[plane], bytes);
    }
    pages.push_back({to[0], to[1], to[2], to[3]});
  }
  return pages;
}

constexpr Encoding kRaw{.format = Format::kF16, .bits = 16};

}  // namespace

GpuProblem::GpuProblem(const GpuCase& c, uint64_t seed_)
    : shape(c),
      seed(seed_),
      encoded(c.codec, c.head_dim, c.placing, c.rows - c.tail_rows),
      tail(same(kRaw), c.head_dim, {c.codec.unit_rows()}, c.tail_rows),
      q(numbers(static_cast<size_t>(c.group * c.n * c.head_dim), seed)),
      out(q.size(), NAN) {
  encoded.fill(given(false), given(true));
  tail.fill(numbers(size_of(tail), seed + 3), numbers(size_of(tail), seed + 4));
}

std::vector<float> GpuProblem::given(bool v) const { return numbers(size_of(encoded), seed + 1 + v); }

std::vector<float> GpuProblem::decoded(bool v) const {
  std::vector<float> all = encoded.decoded(v);
  const std::vector<float> raw = tail.decoded(v);
  all.insert(all.end(), raw.begin(), raw.end());
  return all;
}

Exact GpuProblem::exact() const {
  const auto d = static_cast<size_t>(shape.head_dim);
  const std::vector<float> k = decoded(false), v = decoded(true);
  Exact all{{}, std::vector<double>(k.size() / d, 0.0)};
  for (int query = 0; query < shape.group * shape.n; ++query) {
    const size_t rows = static_cast<size_t>(seen(query)) * d;
    const Exact one = attend_exactly(std::span(q).subspan(static_cast<size_t>(query) * d, d),
                                     std::span(k).first(rows), std::span(v).first(rows), shape.head_dim);
    all.out.insert(all.out.end(), one.out.begin(), one.out.end());
    for (size_t row = 0; row < one.weights.size(); ++row) all.weights[row] += one.weights[row];
  }
  return all;
}

double GpuProblem::relative_error() const { return gpu_check::relative_error(out, exact().out); }

double GpuProblem::weight_error() const {
  const std::vector<double> want = exact().weights;
  double most = 0.0;
  for (size_t row = 0; row < want.size(); ++row) {
    const double error = std::fabs(double{weights[row]} - want[row]) / (1.0 + want[row]);
    most = error <= most ? most : error;  // NaN stays
  }
  return most;
}

template <class T>
T* GpuBatch::keep(const std::vector<T>& values) {
  return kept_.emplace_back(upload(gpu_, values)).template as<T>();
}

const cuda::Page* GpuBatch::keep(const PagedHead& head) { return keep(mirrored(gpu_, head, kept_)); }

GpuBatch::GpuBatch(cuda::Gpu& gpu, std::vector<GpuProblem>& problems, const Options& options)
    : gpu_(gpu), problems_(problems) {
  const GpuProblem& first = problems.front();
  plan_.layout = first.encoded.layout;
  plan_.tail = first.tail.layout;
  plan_.head_dim = first.shape.head_dim;
  plan_.group = first.shape.group;
  for (const GpuProblem& p : problems) {
    const auto stored = static_cast<size_t>(p.encoded.rows() + p.tail.rows());
    if (options.scored) weights_.push_back(keep(std::vector<float>(stored, 0.0f)));
    plan_.problems.push_back(
        {.q = keep(p.q),
         .out = keep(std::vector<float>(p.q.size(), NAN)),
         .pages = keep(p.encoded),
         .tail = keep(p.tail),
         .rows = p.encoded.rows(),
         .tail_rows = p.tail.rows(),
         .n = p.shape.n,
         .visible = p.shape.rows - p.shape.n + 1,
         .splits = 0,
         .first_partial = 0,
         .logits = options.scored ? keep(std::vector<float>(
                                        stored * static_cast<size_t>(p.shape.group * p.shape.n), NAN))
                                  : nullptr});
    most_rows_ = std::max(most_rows_, p.shape.rows);
  }
  cut(options);
  const auto partials = static_cast<size_t>(plan_.partials);
  at_.problems = keep(plan_.problems);
  for (int side = 0; side < 2; ++side) at_.items[side] = keep(plan_.items[side]);
  at_.counters = keep(std::vector<unsigned>(plan_.counters(), 0));
  at_.partials = {keep(std::vector<float>(partials, NAN)), keep(std::vector<float>(partials, NAN)),
                  keep(std::vector<float>(partials * static_cast<size_t>(plan_.head_dim), NAN))};
  at_.log_sum = keep(std::vector<float>(problems.size() * static_cast<size_t>(plan_.most_queries), NAN));
  if (options.scored) weights_of_ = keep(weights_);
  gpu.synchronize();
}

// The plan's cut, or items of any length, as no plan has them.
void GpuBatch::cut(const Options& options) {
  plan_.cut(gpu_, options.cut);
  if (options.item_rows == 0) return;
  split_rows_ = options.item_rows;
  plan_.partials = plan_.most_splits = 0;
  const bool apart = !gpu_.decode_instance(plan_.layout, plan_.most_queries).takes_tail;
  for (auto& items : plan_.items) items.clear();
  for (int32_t i = 0; i < plan_.count(); ++i) {
    cuda::Problem& p = plan_.problems[static_cast<size_t>(i)];
    p.splits = 0;
    for (const bool tail : {false, true}) {
      const int32_t rows = tail ? p.tail_rows : p.rows;
      for (int32_t begin = 0; is_fast() && begin < rows; begin += split_rows_) {
        plan_.items[tail && apart].push_back(
            {i, p.splits++, begin, std::min(begin + split_rows_, rows), tail});
      }
    }
    if (!is_fast()) p.splits = (p.visible + p.n - 1 + split_rows_ - 1) / split_rows_;
    p.first_partial = plan_.partials;
    plan_.partials += int64_t{p.splits} * plan_.group * p.n;
    plan_.most_splits = std::max(plan_.most_splits, p.splits);
  }
}

void GpuBatch::step(bool merges) const {
  AttentionPlan::Placed at = at_;
  if (!merges) at.counters = nullptr;
  if (is_fast()) {
    plan_.run(gpu_, at);
  } else {
    gpu_.attend_simple({plan_.layout, plan_.tail, at.problems, at.partials, plan_.group, split_rows_, 0},
                       plan_.count(), plan_.most_splits, plan_.most_queries);
    plan_.merge(gpu_, at);
  }
  if (weights_of_)
    gpu_.add_attention_weights({at.problems, at.log_sum, weights_of_, plan_.group, plan_.most_queries},
                               plan_.count(), most_rows_);
}

void GpuBatch::fetch() {
  for (size_t i = 0; i < problems_.size(); ++i) {
    GpuProblem& p = problems_[i];
    p.out = download(gpu_, plan_.problems[i].out, p.out.size());
    const auto stored = static_cast<size_t>(p.encoded.rows() + p.tail.rows());
    if (weights_of_) p.weights = download(gpu_, weights_[i], stored);
  }
}

bool GpuBatch::counters_are_zero() const {
  return std::ranges::all_of(download(gpu_, at_.counters, plan_.counters()),
                             [](unsigned count) { return count == 0; });
}

bool GpuBatch::copy_is_the_cpus(int problem) const {
  const auto at = static_cast<size_t>(problem);
  const cuda::Problem& p = plan_.problems[at];
  const size_t count = static_cast<size_t>(cuda::rows_of(p)) * static_cast<size_t>(plan_.head_dim);
  const DeviceBytes k(gpu_, count * sizeof(float)), v(gpu_, count * sizeof(float));
  const DeviceBytes job = upload(gpu_, std::vector<cuda::CopyJob>{{p.pages, p.tail, p.rows, p.tail_rows,
                                                                   k.as<float>(), v.as<float>(), nullptr}});
  gpu_.copy_rows({plan_.layout, plan_.tail, job.as<cuda::CopyJob>(), nullptr, false}, 1, cuda::rows_of(p));
  for (const bool is_v : {false, true}) {
    const std::vector<float> want = problems_[at].decoded(is_v),
                             got = download(gpu_, (is_v ? v : k).as<float>(), count);
    if (std::memcmp(got.data(), want.data(), count * sizeof(float)) != 0) return false;
  }
  return true;
}

std::string append_difference(cuda::Gpu& gpu, const CodecPair& codec, int head_dim, const Placing& placing,
                              const std::vector<float>& k, const std::vector<float>& v) {
  const auto rows = static_cast<int32_t>(k.size() / static_cast<size_t>(head_dim));
  PagedHead stored(codec, head_dim, placing, rows), want(codec, head_dim, kContiguous, rows);
  const int32_t units = stored.units();
  std::vector<int32_t> slots(static_cast<size_t>(units));
  std::iota(slots.rbegin(), slots.rend(), 0);
  const auto unit = static_cast<std::ptrdiff_t>(codec.unit_rows()) * head_dim;
  std::vector<DeviceBytes> given, planes;
  for (const std::vector<float>* side : {&k, &v}) {
    std::vector<float> reversed;
    for (const int32_t slot : slots)
      reversed.insert(reversed.end(), side->begin() + slot * unit, side->begin() + (slot + 1) * unit);
    given.push_back(upload(gpu, reversed));
  }
  const std::vector<cuda::Page> pages = mirrored(gpu, stored, planes);
  const DeviceBytes on_gpu = upload(gpu, pages), device_slots = upload(gpu, slots);
  const DeviceBytes job = upload(gpu, std::vector<cuda::AppendJob>{{.k = given[0].as<std::byte>(),
                                                                    .v = given[1].as<std::byte>(),
                                                                    .pages = on_gpu.as<cuda::Page>(),
                                                                    .slots = device_slots.as<int32_t>(),
                                                                    .first = 0,
                                                                    .units = units}});
  gpu.append({stored.layout, job.as<cuda::AppendJob>(), false}, 1, units);
  for (size_t i = 0; i < pages.size(); ++i) {
    const cuda::Page &from = pages[i], &to = stored.pages[i];
    const std::byte* sources[] = {from.k, from.k_meta, from.v, from.v_meta};
    std::byte* targets[] = {to.k, to.k_meta, to.v, to.v_meta};
    for (size_t plane = 0; plane < 4; ++plane)
      if (const size_t bytes = stored.page_bytes(i)[plane]; bytes > 0)
        gpu.copy(targets[plane], sources[plane], bytes);
  }
  want.fill(k, v);
  return difference(stored, want);
}

}  // namespace kv::gpu_check
