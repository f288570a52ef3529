#include "harness/gpu_check/scene.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

#include "harness/gpu_check/exact.h"
#include "harness/gpu_check/numbers.h"
#include "kernels/format/descriptor.h"
#include "kernels/format/encoding.h"

namespace kv::gpu_check {
namespace {

constexpr Encoding kRaw{.format = Format::kF16, .bits = 16};

Encoding row_format(Format format, int bits) {
  return {.format = format, .bits = static_cast<uint8_t>(bits)};
}
Encoding token(int bits, bool affine = true) {
  return {.format = Format::kToken, .bits = static_cast<uint8_t>(bits), .affine = affine};
}
Encoding channel(int bits) {
  return {.format = Format::kChannel, .bits = static_cast<uint8_t>(bits), .group = 32, .affine = true};
}

cuda::SideLayout side_layout(const Encoding& e, int head_dim, int32_t unit_rows) {
  const auto data = static_cast<int32_t>(unit_data_bytes(e, head_dim));
  const auto meta = static_cast<int32_t>(unit_meta_bytes(e, head_dim));
  const int32_t inner = unit_rows / e.group;
  return {e, data, meta, data * inner, meta * inner};
}

}  // namespace

const std::vector<CodecChoice>& codecs() {
  const auto same = [](const char* name, const Encoding& e) { return CodecChoice{name, e, e}; };
  static const std::vector<CodecChoice> all{
      same("f32", {}),
      same("f16", kRaw),
      same("bf16", row_format(Format::kBf16, 16)),
      same("fp8", row_format(Format::kFp8E4M3, 8)),
      same("fp8e5m2", row_format(Format::kFp8E5M2, 8)),
      same("q8_0", row_format(Format::kQ8_0, 8)),
      same("q4_0", row_format(Format::kQ4_0, 4)),
      same("token8", token(8)),
      same("token4", token(4)),
      same("token2", token(2)),
      same("symmetric8", token(8, false)),
      same("symmetric4", token(4, false)),
      same("symmetric2", token(2, false)),
      {"q8_0+q4_0", row_format(Format::kQ8_0, 8), row_format(Format::kQ4_0, 4)},
      {"kivi8", channel(8), token(8)},
      {"kivi4", channel(4), token(4)},
      {"kivi2", channel(2), token(2)}};
  return all;
}

const CodecChoice& codec_named(const std::string& name) {
  for (const CodecChoice& codec : codecs()) {
    if (codec.name == name) return codec;
  }
  throw std::logic_error("no codec " + name);
}

Scene::Scene(cuda::Gpu& gpu, const WriteNumbers& write, const SceneShape& shape, uint64_t seed)
    : gpu_(gpu), shape_(shape), seed_(seed) {
  std::vector<int32_t> main_rows, tail_rows;
  for (const int32_t rows : shape.rows) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      main_rows.push_back(rows - shape.tail_rows);
      tail_rows.push_back(shape.tail_rows);
    }
  }
  main_ = make_pool(shape.codec, main_rows, shape.page_rows);
  tail_ = make_pool({"raw", kRaw, kRaw}, tail_rows, shape.codec.unit_rows());
  fill(main_, 0, write);
  fill(tail_, 1, write);
  const int64_t queries = int64_t{shape.queries()} * static_cast<int64_t>(main_rows.size()) * shape.head_dim;
  q_ = DeviceBytes(gpu, static_cast<size_t>(queries) * sizeof(float));
  out_ = DeviceBytes(gpu, static_cast<size_t>(queries) * sizeof(float));
  write(q_.as<float>(), queries, seed, int64_t{1} << 60);
  fast_ = planned(shape.split ? AttentionPlan::Cut::kEven : AttentionPlan::Cut::kWhole);
  plain_ = planned(AttentionPlan::Cut::kPlain);
  gpu.synchronize();
}

Scene::Pool Scene::make_pool(const CodecChoice& codec, const std::vector<int32_t>& rows,
                             int32_t page_rows) const {
  const int32_t unit = codec.unit_rows(), most = *std::max_element(rows.begin(), rows.end());
  const int32_t units = (most + unit - 1) / unit;
  Pool pool;
  pool.rows = rows;
  pool.layout = {.k = side_layout(codec.k, shape_.head_dim, unit),
                 .v = side_layout(codec.v, shape_.head_dim, unit),
                 .head_dim = shape_.head_dim,
                 .unit_rows = unit,
                 .page_units = page_rows ? std::max(1, page_rows / unit) : std::max(1, units)};
  pool.pages_each = (units + pool.layout.page_units - 1) / pool.layout.page_units;
  const size_t count = rows.size() * static_cast<size_t>(pool.pages_each);
  const int32_t strides[4] = {pool.layout.k.data_stride, pool.layout.k.meta_stride, pool.layout.v.data_stride,
                              pool.layout.v.meta_stride};
  std::byte* base[4];
  size_t page_bytes[4];
  for (int p = 0; p < 4; ++p) {
    page_bytes[p] = static_cast<size_t>(strides[p]) * static_cast<size_t>(pool.layout.page_units);
    pool.plane[p] = DeviceBytes(gpu_, page_bytes[p] * count);
    base[p] = pool.plane[p].as<std::byte>();
  }
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 random(seed_);
  if (page_rows) std::shuffle(order.begin(), order.end(), random);
  for (const size_t i : order) {
    pool.pages.push_back({base[0] + i * page_bytes[0], base[1] + i * page_bytes[1],
                          base[2] + i * page_bytes[2], base[3] + i * page_bytes[3]});
  }
  pool.device_pages = upload(gpu_, pool.pages);
  return pool;
}

int64_t Scene::first_number(const Pool& pool, int stream, int problem, bool v) const {
  const int64_t most = *std::max_element(pool.rows.begin(), pool.rows.end());
  return (int64_t{stream} << 58) + (2 * int64_t{problem} + v) * most * shape_.head_dim;
}

// Problems go a few at a time: their f32 rows may be many times as large as the stored bytes.
void Scene::fill(const Pool& pool, int stream, const WriteNumbers& write) const {
  const int64_t most = *std::max_element(pool.rows.begin(), pool.rows.end());
  const int64_t numbers = 2 * most * shape_.head_dim;
  if (numbers == 0) return;
  const int64_t fitting = std::clamp<int64_t>((int64_t{64} << 20) / numbers, 1, 4096);
  const auto at_once = static_cast<int>(std::min(fitting, std::ssize(pool.rows)));
  const DeviceBytes rows(gpu_, static_cast<size_t>(numbers * at_once) * sizeof(float));
  for (int first = 0; first < static_cast<int>(pool.rows.size()); first += at_once) {
    std::vector<cuda::AppendJob> jobs;
    for (int i = first; i < std::min<int>(first + at_once, static_cast<int>(pool.rows.size())); ++i) {
      float* k = rows.as<float>() + (i - first) * numbers;
      jobs.push_back({.k = reinterpret_cast<const std::byte*>(k),
                      .v = reinterpret_cast<const std::byte*>(k + numbers / 2),
                      .pages = pool.device_pages.as<cuda::Page>() + int64_t{i} * pool.pages_each,
                      .slots = nullptr,
                      .first = 0,
                      .units = pool.rows[i] / pool.layout.unit_rows});
    }
    write(rows.as<float>(), numbers * std::ssize(jobs), seed_, first_number(pool, stream, first, false));
    const DeviceBytes device_jobs = upload(gpu_, jobs);
    gpu_.append({pool.layout, device_jobs.as<cuda::AppendJob>(), false}, static_cast<int>(jobs.size()),
                static_cast<int>(most / pool.layout.unit_rows));
    gpu_.synchronize();
  }
}

Scene::Planned Scene::planned(AttentionPlan::Cut how) const {
  Planned made;
  AttentionPlan& plan = made.plan;
  plan.layout = main_.layout;
  plan.tail = tail_.layout;
  plan.head_dim = shape_.head_dim;
  plan.group = shape_.group;
  const int64_t queries = int64_t{shape_.queries()} * shape_.head_dim;
  for (size_t i = 0; i < main_.rows.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    plan.problems.push_back({.q = q_.as<float>() + at * queries,
                             .out = out_.as<float>() + at * queries,
                             .pages = main_.device_pages.as<cuda::Page>() + at * main_.pages_each,
                             .tail = tail_.device_pages.as<cuda::Page>() + at * tail_.pages_each,
                             .rows = main_.rows[i],
                             .tail_rows = tail_.rows[i],
                             .n = shape_.tokens,
                             .visible = main_.rows[i] + tail_.rows[i] - shape_.tokens + 1,
                             .splits = 0,
                             .first_partial = 0,
                             .logits = nullptr});
  }
  plan.cut(gpu_, how);
  const auto partials = static_cast<size_t>(plan.partials);
  made.max = DeviceBytes(gpu_, partials * sizeof(float));
  made.sum = DeviceBytes(gpu_, partials * sizeof(float));
  made.values = DeviceBytes(gpu_, partials * static_cast<size_t>(shape_.head_dim) * sizeof(float));
  made.problems = upload(gpu_, plan.problems);
  made.counters = upload(gpu_, std::vector<unsigned>(plan.counters(), 0));
  for (int side = 0; side < 2; ++side) {
    made.items[side] = upload(gpu_, plan.items[side]);
    made.at.items[side] = made.items[side].as<cuda::WorkItem>();
  }
  made.at.problems = made.problems.as<cuda::Problem>();
  made.at.counters = made.counters.as<unsigned>();
  made.at.partials = {made.max.as<float>(), made.sum.as<float>(), made.values.as<float>()};
  return made;
}

void Scene::step(Path path) {
  const Planned& planned = path == Path::kPlain ? plain_ : fast_;
  AttentionPlan::Placed at = planned.at;
  if (path == Path::kTwoLaunches) at.counters = nullptr;
  planned.plan.run(gpu_, at);
}

std::vector<std::byte> Scene::units_of(const Pool& pool, int problem, Plane plane) const {
  const cuda::SideLayout& side = plane < kVData ? pool.layout.k : pool.layout.v;
  const int64_t stride = plane == kKData || plane == kVData ? side.data_stride : side.meta_stride;
  const int64_t units = pool.rows[problem] / pool.layout.unit_rows, page_units = pool.layout.page_units;
  std::vector<std::byte> all(static_cast<size_t>(units * stride));
  for (int64_t unit = 0; unit < units && stride > 0; unit += page_units) {
    const cuda::Page& page =
        pool.pages[static_cast<size_t>(int64_t{problem} * pool.pages_each + unit / page_units)];
    const std::byte* from[] = {page.k, page.k_meta, page.v, page.v_meta};
    gpu_.copy(all.data() + unit * stride, from[plane],
              static_cast<size_t>(std::min(page_units, units - unit) * stride));
  }
  return all;
}

std::vector<float> Scene::decoded(const Pool& pool, int problem, bool v) const {
  const cuda::SideLayout& side = v ? pool.layout.v : pool.layout.k;
  const auto codes = units_of(pool, problem, v ? kVData : kKData);
  const auto scales = units_of(pool, problem, v ? kVMeta : kKMeta);
  const FormatDescriptor& format = descriptor_of(side.encoding.format);
  const int32_t rows = pool.rows[problem], group = side.encoding.group;
  std::vector<float> all(static_cast<size_t>(rows) * static_cast<size_t>(shape_.head_dim));
  for (int32_t row = 0; row < rows; row += group) {
    const int64_t unit = row / group;
    format.decode(side.encoding, shape_.head_dim, codes.data() + unit * side.data_bytes,
                  scales.data() + unit * side.meta_bytes, 0, std::min(group, rows - row),
                  all.data() + int64_t{row} * shape_.head_dim);
  }
  return all;
}

bool Scene::bytes_are_the_cpus(int problem) const {
  for (const bool v : {false, true}) {
    const cuda::SideLayout& side = v ? main_.layout.v : main_.layout.k;
    const auto codes = units_of(main_, problem, v ? kVData : kKData);
    const auto scales = units_of(main_, problem, v ? kVMeta : kKMeta);
    std::vector<std::byte> want_codes(codes.size()), want_scales(scales.size());
    std::vector<float> rows(static_cast<size_t>(side.encoding.group) * static_cast<size_t>(shape_.head_dim));
    int64_t number = first_number(main_, 0, problem, v);
    for (int64_t unit = 0; unit < main_.rows[problem] / side.encoding.group; ++unit) {
      for (float& x : rows) x = normal_number(seed_, number++);
      descriptor_of(side.encoding.format)
          .encode(side.encoding, shape_.head_dim, rows.data(), want_codes.data() + unit * side.data_bytes,
                  want_scales.data() + unit * side.meta_bytes);
    }
    if (codes != want_codes || scales != want_scales) return false;
  }
  return true;
}

std::vector<float> Scene::all_decoded(int problem, bool v) const {
  std::vector<float> all = decoded(main_, problem, v);
  const std::vector<float> tail = decoded(tail_, problem, v);
  all.insert(all.end(), tail.begin(), tail.end());
  return all;
}

bool Scene::copy_is_the_cpus(int problem) const {
  const cuda::Problem& p = this->problem(problem);
  const size_t bytes = static_cast<size_t>(rows_of(p)) * static_cast<size_t>(shape_.head_dim) * sizeof(float);
  const DeviceBytes copy[] = {DeviceBytes(gpu_, bytes), DeviceBytes(gpu_, bytes)};
  const cuda::CopyJob job{p.pages, p.tail, p.rows, p.tail_rows, copy[0].as<float>(), copy[1].as<float>(),
                          nullptr};
  const DeviceBytes device_job = upload(gpu_, std::vector<cuda::CopyJob>{job});
  gpu_.copy_rows({main_.layout, tail_.layout, device_job.as<cuda::CopyJob>(), nullptr, false}, 1, rows_of(p));
  std::vector<float> got(bytes / sizeof(float));
  for (const bool v : {false, true}) {
    gpu_.copy(got.data(), copy[v].as<float>(), bytes);
    const std::vector<float> want = all_decoded(problem, v);
    if (std::memcmp(got.data(), want.data(), bytes) != 0) return false;
  }
  return true;
}

double Scene::relative_error(int problem) const {
  std::vector<float> k = all_decoded(problem, false), v = all_decoded(problem, true);
  const auto d = static_cast<size_t>(shape_.head_dim);
  const size_t numbers = static_cast<size_t>(shape_.queries()) * d;
  std::vector<float> q(numbers), out(numbers);
  gpu_.copy(q.data(), this->problem(problem).q, numbers * sizeof(float));
  gpu_.copy(out.data(), this->problem(problem).out, numbers * sizeof(float));
  // Back to front: each token sees one row less than the next.
  std::vector<double> want(numbers);
  for (int32_t token = shape_.tokens - 1; token >= 0; --token) {
    for (int32_t g = 0; g < shape_.group; ++g) {
      const size_t at = static_cast<size_t>(g * shape_.tokens + token) * d;
      const std::vector<float> one(q.data() + at, q.data() + at + d);
      const Exact exact = attend_exactly(one, k, v, shape_.head_dim);
      std::copy(exact.out.begin(), exact.out.end(), want.data() + at);
    }
    k.resize(k.size() - d);
    v.resize(v.size() - d);
  }
  return gpu_check::relative_error(out, want);
}

}  // namespace kv::gpu_check
