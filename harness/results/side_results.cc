#include "harness/results/side_results.h"

#include "harness/results/prediction_fields.h"

namespace kv::results {
namespace {

// What cells.csv says of a column of the same name holds here too.
std::string_view as_of_cells(std::string_view name) { return cell_schema().at(name).meaning; }

template <class Row>
Field<Row> host_field() {
  return {"host", "", &Row::host, "where a merged table has rows of several machines", Later{}};
}

template <class Row>
Field<Row> shared(std::string_view name, typename Field<Row>::Member member) {
  const Field<CellResult>& of_cells = cell_schema().at(name);
  return {name, of_cells.unit, member, of_cells.meaning};
}

}  // namespace

const Schema<SampleResult>& sample_schema() {
  using S = SampleResult;
  static const Schema<S> schema(
      "samples.csv",
      {shared<S>("cell", &S::cell),
       shared<S>("variant", &S::variant),
       shared<S>("seq_len", &S::seq_len),
       shared<S>("batch", &S::batch),
       {"repetition", "", &S::repetition, "from 0"},
       {"sample", "", &S::sample, "of the repetition, from 0"},
       one_of<S>(
           {"kind", "", &S::kind,
            "step, prefill, cold (attention alone over rotating caches), draft (a step that verifies "
            "drafts), or a "
            "checkpoint run's operation"},
           {"step", "prefill", "cold", "draft", "save", "load", "freeze", "unfreeze", "fork", "compact"}),
       {"append_us", "us", &S::append_us, as_of_cells("append_p50_us")},
       {"view_us", "us", &S::view_us, as_of_cells("view_p50_us")},
       {"attend_us", "us", &S::attend_us, as_of_cells("attend_p50_us")},
       {"step_us", "us", &S::step_us,
        "append + view + attend + projections + state + rest, or the operation"},
       {"projections_us", "us", &S::projections_us, as_of_cells("projections_p50_us"), Later{}},
       {"state_us", "us", &S::state_us, as_of_cells("state_p50_us"), Later{}},
       {"rest_us", "us", &S::rest_us, as_of_cells("rest_p50_us"), Later{}},
       {"gpu_us", "us", &S::gpu_us, as_of_cells("gpu_p50_us"), Later{}},
       host_field<S>()});
  return schema;
}

const Schema<GrowthResult>& growth_schema() {
  using G = GrowthResult;
  static const Schema<G> schema(
      "growth.csv",
      {shared<G>("cell", &G::cell),
       shared<G>("variant", &G::variant),
       shared<G>("batch", &G::batch),
       shared<G>("seq_len", &G::seq_len),
       {"repetition", "", &G::repetition, "from 0"},
       {"token", "tokens", &G::token, "of a sequence after this step"},
       {"append_us", "us", &G::append_us, as_of_cells("append_p50_us")},
       {"view_us", "us", &G::view_us, as_of_cells("view_p50_us")},
       {"attend_us", "us", &G::attend_us, "empty where the run measures the cache update alone"},
       {"step_us", "us", &G::step_us, as_of_cells("step_p50_us")},
       shared<G>("bytes_payload", &G::bytes_payload),
       shared<G>("bytes_metadata", &G::bytes_metadata),
       shared<G>("bytes_slack", &G::bytes_slack),
       {"bytes_workspace", "bytes", &G::bytes_workspace, "scratch buffers after this step"},
       {"bytes_copied", "bytes", &G::bytes_copied, "moved by growth and slicing since the first step"},
       host_field<G>()});
  return schema;
}

const Schema<PositionResult>& position_schema() {
  using P = PositionResult;
  static const Schema<P> schema("positions.csv", [] {
    std::vector<Field<P>> fields{shared<P>("cell", &P::cell),
                                 shared<P>("variant", &P::variant),
                                 shared<P>("batch", &P::batch),
                                 shared<P>("seq_len", &P::seq_len),
                                 {"position_first", "tokens", &P::position_first,
                                  "tokens before the first prediction of the bucket, less one"},
                                 {"position_last", "tokens", &P::position_last, "and before the last"}};
    for (const auto& part : {loss_fields<P>(), comparison_fields<P>()})
      fields.insert(fields.end(), part.begin(), part.end());
    fields.push_back(host_field<P>());
    return fields;
  }());
  return schema;
}

const Schema<TextResult>& text_schema() {
  using T = TextResult;
  static const Schema<T> schema(
      "texts.csv", {shared<T>("cell", &T::cell),
                    shared<T>("variant", &T::variant),
                    {"temperature", "", &T::temperature, "0 is greedy"},
                    {"sequence", "", &T::sequence, "of the batch, from 0"},
                    {"sample", "", &T::sample, "of those that go on from the prompt, from 0"},
                    {"common_tokens", "tokens", &T::common_tokens,
                     "generated before the text differs from the full f32 cache's; empty if it never does"},
                    {"prompt", "", &T::prompt, "what both go on from"},
                    {"text", "", &T::text, "with this cache"},
                    {"full_text", "", &T::full_text, "with the full f32 cache and the same random numbers"},
                    host_field<T>()});
  return schema;
}

const Schema<HeadResult>& head_schema() {
  using H = HeadResult;
  static const Schema<H> schema("heads.csv", [] {
    std::vector<Field<H>> fields{shared<H>("cell", &H::cell),
                                 shared<H>("variant", &H::variant),
                                 shared<H>("batch", &H::batch),
                                 shared<H>("seq_len", &H::seq_len),
                                 {"layer", "", &H::layer, "of the dump, from 0"},
                                 {"q_head", "", &H::q_head, "query head of the layer, from 0"}};
    for (size_t i = 0; i < verify::metrics().size(); ++i) {
      const verify::Metric& metric = *verify::metrics()[i];
      if (metric.of == verify::Metric::Of::kOutputs)
        fields.push_back(shared<H>(metric.name, ListedNumber<H>{&H::metrics, i}));
    }
    return fields;
  }());
  return schema;
}

const Schema<MomentResult>& moment_schema() {
  using M = MomentResult;
  static const Schema<M> schema(
      "replay.csv",
      {shared<M>("cell", &M::cell),
       shared<M>("variant", &M::variant),
       shared<M>("batch", &M::batch),
       shared<M>("seq_len", &M::seq_len),
       {"time_s", "s", &M::time_s, "on the replay's clock, the end of the stretch; values are means over it"},
       {"running", "", &M::running, "sequences that run; none while nothing is there to do"},
       {"waiting", "", &M::waiting, "requests that wait"},
       {"payload_bytes", "bytes", &M::payload_bytes, "rows that are filled"},
       {"slack_bytes", "bytes", &M::slack_bytes, "reserved for sequences and not filled"},
       {"other_bytes", "bytes", &M::other_bytes, "block tables, scores, codecs' raw rows, states"},
       {"cached_bytes", "bytes", &M::cached_bytes, "blocks of prefixes that no sequence uses"}});
  return schema;
}

const Schema<HitResult>& hit_schema() {
  using H = HitResult;
  static const Schema<H> schema("hits.csv", [] {
    std::vector<Field<H>> fields{
        shared<H>("cell", &H::cell), shared<H>("variant", &H::variant), shared<H>("batch", &H::batch),
        shared<H>("seq_len", &H::seq_len),
        Field<H>{"capacity_bytes", "bytes", &H::capacity_bytes, "rows of capacity_blocks, of this variant"}};
    for (const Field<H>& field : hit_fields<H>()) fields.push_back(field);
    return fields;
  }());
  return schema;
}

}  // namespace kv::results
