// The GPU's attention on the shim: a table of cases in which every instance that is compiled for the GPU runs, and the plain
// kernel, with the properties of the CPU's.
#include "tests/kernels/attention/properties.h"
#include "tests/kernels/cuda/cuda_attention.h"

namespace kv::cuda_table_test {
namespace {

using namespace test;

const CodecPair& codec_of(const Case& c) { return storages()[static_cast<size_t>(c.storage)].codecs.front(); }

cuda::Instance instance_of(const Case& c) {
  return cuda::find_instance(layout_of(codec_of(c), c.head_dim, kContiguous), c.group * c.n,
                             c.shared_kib << 10);
}

class ShimBackend : public Backend {
 public:
  using Backend::attend;
  std::string name() const override { return "shim"; }
  bool whole_units() const override { return true; }
  // The longest problem of a launch picks the kernel.
  bool steps_change_no_bit() const override { return false; }
  bool masks_values(const Case& c) const override { return c.n == 1; }
  bool has_parts(const Case& c) const override { return c.heads == 1; }
  double bound(const Case& c) const override {
    return c.shape == kLarge ? 1e-4 : c.shape == kUnequal ? 4e-5 : kBound;
  }

  std::vector<Output> attend(std::span<const Problem> problems, const Way& way) override {
    const Case& c = problems.front().shape;
    std::vector<GpuProblem> on_gpu;
    for (const Problem& p : problems) {
      const auto segments = p.segments();
      const int raw = c.tail ? segments.back().second : 0;
      GpuProblem& one =
          on_gpu.emplace_back(GpuCase{codec_of(c), c.head_dim, c.group, p.stored, raw, p.n, way.placing}, 1);
      one.q = p.q;
      one.shape.rows = p.rows;
      const auto cut = int64_t{p.stored - raw} * c.head_dim;
      one.encoded.fill({p.k.begin(), p.k.begin() + cut}, {p.v.begin(), p.v.begin() + cut});
      one.tail.fill({p.k.begin() + cut, p.k.end()}, {p.v.begin() + cut, p.v.end()});
    }
    const bool fast = c.shared_kib > 0;
    SimtGpu gpu(static_cast<unsigned>(way.turn));
    if (fast) gpu.most_shared_bytes = c.shared_kib << 10;
    GpuBatch batch(gpu, on_gpu,
                   {.cut = fast ? AttentionPlan::Cut::kEven : AttentionPlan::Cut::kPlain,
                    .item_rows = fast ? c.item_rows : kSimpleRows,
                    .scored = c.scored != 0});
    EXPECT_EQ(batch.is_fast(), fast);
    batch.step(!way.parts);
    batch.fetch();
    EXPECT_TRUE(batch.counters_are_zero());
    std::vector<Output> outputs;
    for (const GpuProblem& p : on_gpu) {
      outputs.push_back({p.out, p.weights});
      outputs.back().weights.resize(c.scored ? static_cast<size_t>(p.shape.rows) : 0);
    }
    return outputs;
  }
};

bool fits(const Case& c) {
  return c.rows >= c.n && int64_t{c.group} * c.n * c.rows * c.head_dim <= 400'000 && numbers_fit(c) &&
         (!c.tail || codec_of(c).unit_rows() > 1) && (c.shared_kib == 0 || instance_of(c).kernel);
}

std::vector<int> gpu_storages() {
  std::vector<int> all;
  for (size_t i = 0; i < storages().size(); ++i) {
    const std::vector<CodecPair>& codecs = storages()[i].codecs;
    if (codecs.size() == 1 &&
        cuda::find_instance(layout_of(codecs.front(), 64, kContiguous), 1, kHopperBytes).kernel)
      all.push_back(static_cast<int>(i));
  }
  return all;
}

// Every instance once, and the plain kernel (of no shared memory).
TEST(CudaTable, EveryInstance) {
  const Axis queries{{&Case::group, &Case::n, &Case::shared_kib},
                     {{1, 1, 227},
                      {16, 1, 227},
                      {1, 65, 227},
                      {5, 1, 99},
                      {7, 2, 227},
                      {4, 33, 99},
                      {3, 3, 0},
                      {7, 11, 227}}};
  Pairs pairs({axis(&Case::storage, gpu_storages()),
               axis(&Case::head_dim, {64, 128, 256}),
               queries,
               axis(&Case::rows, {1, 3, 16, 70, 150, 400}),
               axis(&Case::tail, {0, 5, 40}),
               axis(&Case::unseen, {0, 3, 40}),
               axis(&Case::placing, {0, 1, 2, 3, 4}),
               axis(&Case::heads, {1, 2}),
               axis(&Case::item_rows, {352, 64}),
               axis(&Case::scored, {0, 1}),
               axis(&Case::shape, {kPlain, kGrowing, kUnequal, kSpiky, kLarge}),
               {{&Case::keys, &Case::values}, {{0, 0}, {-13, 4}, {-40, 20}, {5, -40}}}},
              fits);
  const auto table = pairs.with_each(3, [](const Case& c) { return instance_of(c).kernel; }).cases();
  std::set<void (*)(cuda::DecodeParams)> all, run;
  for (const int storage : gpu_storages())
    for (const int head_dim : {64, 128, 256})
      for (const int kib : {99, 227})
        for (int n = 1; n <= 64; ++n)
          all.insert(
              instance_of({.storage = storage, .head_dim = head_dim, .n = n, .shared_kib = kib}).kernel);
  for (const Case& c : table) run.insert(instance_of(c).kernel);
  for (const auto kernel : all) EXPECT_TRUE(run.contains(kernel)) << "an instance that no case runs";
  for_each_case(table, fits, [](const Case& c) {
    const std::vector<Problem> step = step_of(c, true);
    const Exact want = exact(step.front());
    ShimBackend backend;
    Properties(backend, c, step, want).expect_all();
  });
}

}  // namespace
}  // namespace kv::cuda_table_test
