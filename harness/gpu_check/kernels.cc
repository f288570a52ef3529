// Checks every kernel on the GPU: stored bytes against the CPU's encoders, outputs against FP64.
#include <cstdio>

#include "harness/gpu_check/checks.h"
#include "harness/gpu_check/choices.h"
#include "harness/gpu_check/codecs.h"
#include "harness/gpu_check/problem.h"

namespace kv::gpu_check {
namespace {

enum class Path { kOneLaunch, kTwoLaunches, kPlain };
constexpr const char* kPaths[] = {"", " two launches", " plain"};

// Two heads of each of these lengths.
struct Case {
  std::string codec;
  GpuCase head;
  std::vector<int32_t> rows;
  Path path = Path::kOneLaunch;
  bool scored = false;
};

std::string describe(const Case& c) {
  return c.codec + kPaths[static_cast<int>(c.path)] + " d" + std::to_string(c.head.head_dim) + " g" +
         std::to_string(c.head.group) + (c.head.n > 1 ? " chunk of " + std::to_string(c.head.n) : "") +
         (c.head.placing.shuffled ? " paged" : " contiguous") + (c.scored ? " scored" : "");
}

// Blocks of a smaller GPU may have too little shared memory.
bool skipped(const std::string& name) {
  std::printf("{\"stage\": \"kernels\", \"name\": \"%s\", \"status\": \"unsupported\"}\n", name.c_str());
  return true;
}

bool passes(cuda::Gpu& gpu, const Case& c) {
  std::vector<GpuProblem> problems;
  for (const int32_t rows : c.rows) {
    GpuCase head = c.head;
    head.rows = rows;
    for (int i = 0; i < 2; ++i) problems.emplace_back(head, 100 * problems.size() + 17);
  }
  const bool plain = c.path == Path::kPlain;
  GpuBatch batch(gpu, problems,
                 {.cut = plain ? AttentionPlan::Cut::kPlain : AttentionPlan::Cut::kEven, .scored = c.scored});
  if (!plain && !batch.is_fast()) return skipped(describe(c));
  batch.step(c.path != Path::kTwoLaunches);
  batch.fetch();
  double error = 0.0;
  bool bytes = batch.counters_are_zero();
  for (size_t i = 0; i < problems.size(); ++i) {
    for (const double one : {problems[i].relative_error(), c.scored ? problems[i].weight_error() : 0.0})
      error = one <= error ? error : one;  // NaN stays
    bytes &= append_difference(gpu, c.head.codec, c.head.head_dim, c.head.placing, problems[i].given(false),
                               problems[i].given(true))
                 .empty();
    if (plain) bytes &= batch.copy_is_the_cpus(static_cast<int>(i));
  }
  const bool ok = bytes && error <= kBound;
  std::printf(
      "{\"stage\": \"kernels\", \"name\": \"%s\", \"status\": \"%s\", \"relative_error\": %.3g, "
      "\"bytes_are_the_cpus\": %s}\n",
      describe(c).c_str(), ok ? "ok" : "failed", error == error ? error : -1.0, bytes ? "true" : "false");
  std::fflush(stdout);
  return ok;
}

bool choices_pass(cuda::Gpu& gpu, bool newest_query) {
  const std::string wrong = wrong_choice(gpu, newest_query, 17);
  std::printf("{\"stage\": \"kernels\", \"name\": \"slots of %s\", \"status\": \"%s\", \"reason\": \"%s\"}\n",
              newest_query ? "tova" : "h2o", wrong.empty() ? "ok" : "failed", wrong.c_str());
  std::fflush(stdout);
  return wrong.empty();
}

}  // namespace

bool check_kernels(cuda::Gpu& gpu, bool small) {
  bool all = choices_pass(gpu, false);
  all &= choices_pass(gpu, true);
  const int32_t most = small ? 192 : 1536;
  for (const CodecChoice& choice : codecs()) {
    const int32_t unit = choice.codec.unit_rows(), tail = unit > 1 ? 57 : 0;
    for (const int head_dim : {64, 128, 256}) {
      if (small && head_dim != 128) continue;
      for (const int group : {1, 4, 16}) {
        if (small && group != 4) continue;
        for (const Placing& placing : {kContiguous, Placing{unit > 1 ? 1 : 16, true}}) {
          const Case one{choice.name,
                         {choice.codec, head_dim, group, 0, tail, 1, placing},
                         {most + tail, 32 + tail, 96 + tail}};
          all &= passes(gpu, one);
          if (head_dim != 128 || group != 4) continue;
          for (const int32_t tokens : {8, 24}) {  // of several blocks of decode.h, and of chunk.h
            Case chunk = one;
            chunk.head.n = tokens;
            all &= passes(gpu, chunk);
          }
          for (const Path path : {Path::kTwoLaunches, Path::kPlain}) {
            Case scored = one;
            scored.path = path;
            scored.scored = true;
            all &= passes(gpu, scored);
          }
        }
      }
    }
  }
  return all;
}

}  // namespace kv::gpu_check
