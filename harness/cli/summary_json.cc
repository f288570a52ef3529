#include <nlohmann/json.hpp>

#include "harness/cli/answers.h"
#include "harness/cli/summary.h"
#include "harness/experiments/written_columns.h"
#include "harness/results/cell_columns.h"
#include "harness/results/table.h"

namespace kv::cli {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const experiments::Measured& measured) {
  if (!measured.value) return nullptr;
  Json interval;
  if (measured.low && measured.high && *measured.low < *measured.high)
    interval = {*measured.low, *measured.high};
  return {{"value", *measured.value}, {"interval", interval}};
}

Json answers_of(std::span<const results::Row> rows) {
  Cells cells;
  for (const results::Row& row : rows) cells.push_back(&row);
  Json all = Json::array();
  for (const auto& [name, own] : grouped(cells, sweep_point_name)) {
    for (const Answer& answer : answers_at(own))
      all.push_back({{"sweep_point", name},
                     {"question", answer.question},
                     {"cell", answer.best ? Json((*answer.best)[results::kCell]) : Json()},
                     {"variant", answer.best ? Json((*answer.best)[results::kVariant]) : Json()},
                     {"as_good", answer.as_good},
                     {"value", json_of(answer.value)},
                     {"error", json_of(answer.error)},
                     {"text", answer.text}});
  }
  return all;
}

}  // namespace

std::string summary_json(std::span<const results::Row> cells, const std::string& folder, bool finished) {
  Json status = Json::object();
  for (const results::Row& row : cells) {
    Json& count = status[results::text_of(row[results::kStatus])];
    count = count.is_null() ? 1 : count.get<int>() + 1;
  }
  const Json json{{"results", folder},
                  {"finished", finished},
                  {"status", status},
                  {"answers", answers_of(cells)},
                  {"cells", Json::parse(results::json_text(experiments::cell_table(), cells))}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kv::cli
