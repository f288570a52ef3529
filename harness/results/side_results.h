// The rows of the tables beside cells.csv: every timed sample, every step of a growth run, predictions by
// position, generated texts, errors by layer and head, and replays over time. Each says whose it is.
#pragma once

#include <string>
#include <vector>

#include "harness/results/cell_result.h"
#include "harness/results/hit_fields.h"
#include "harness/results/schema.h"

namespace kv::results {

struct OfCell {
  std::string cell, variant;
  Integer batch, seq_len;
  std::string host;  // only where several machines' rows are in one table

  OfCell() = default;
  explicit OfCell(const CellResult& of)
      : cell(of.cell), variant(of.variant), batch(of.batch), seq_len(of.seq_len) {}
};

// A timed step or operation: samples.csv.
struct SampleResult : OfCell {
  using OfCell::OfCell;
  Integer repetition, sample;
  std::string kind;
  Number append_us, view_us, attend_us, step_us, projections_us, state_us, rest_us, gpu_us;
};

// A step of a growth run: growth.csv.
struct GrowthResult : OfCell {
  using OfCell::OfCell;
  Integer repetition, token;
  Number append_us, view_us, attend_us, step_us;
  Integer bytes_payload, bytes_metadata, bytes_slack, bytes_workspace, bytes_copied;
};

// A bucket of positions of a quality or stream run: positions.csv.
struct PositionResult : OfCell, PredictionResult {
  using OfCell::OfCell;
  Integer position_first, position_last;
};

// A sequence of a generate run: texts.csv.
struct TextResult : OfCell {
  using OfCell::OfCell;
  Number temperature;
  Integer sequence, sample, common_tokens;
  std::string prompt, text, full_text;
};

// A layer's query head of an eval: heads.csv.
struct HeadResult : OfCell {
  using OfCell::OfCell;
  Integer layer, q_head;
  std::vector<Number> metrics = std::vector<Number>(verify::metrics().size());  // those of outputs
};

// A stretch of a replay's time: replay.csv.
struct MomentResult : OfCell {
  using OfCell::OfCell;
  Number time_s, running, waiting;
  Number payload_bytes, slack_bytes, other_bytes, cached_bytes;
};

// A point of a trace's hit-rate curve: hits.csv.
struct HitResult : OfCell, HitPoint {
  HitResult(const CellResult& of, const HitPoint& point) : OfCell(of), HitPoint(point) {}
  HitResult() = default;
  Integer capacity_bytes;
};

const Schema<SampleResult>& sample_schema();
const Schema<GrowthResult>& growth_schema();
const Schema<PositionResult>& position_schema();
const Schema<TextResult>& text_schema();
const Schema<HeadResult>& head_schema();
const Schema<MomentResult>& moment_schema();
const Schema<HitResult>& hit_schema();

}  // namespace kv::results
