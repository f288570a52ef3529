#include "harness/experiments/serve/servers.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/requests.h"
#include "harness/experiments/serve/columns.h"
#include "harness/measure/time_columns.h"
#include "harness/peers/peers.h"

namespace kv::experiments {
namespace {

constexpr std::chrono::hours kServerPatience{1};
constexpr const char* kServer = "server";

void check_server(const std::string& url) {
  if ((!url.starts_with("http://") && !url.starts_with("https://")) || url.ends_with('/'))
    throw std::invalid_argument("'" + url + "' is no address of a server, as http://127.0.0.1:8080/v1");
}

std::string load_name(int64_t users) {
  return users == 0 ? "open" : std::to_string(users) + (users == 1 ? " user" : " users");
}

nlohmann::json requests_json(std::span<const ServedRequest> requests) {
  nlohmann::json all = nlohmann::json::array();
  for (const ServedRequest& r : requests)
    all.push_back({{"at", r.request.arrival_s},
                   {"prompt", r.prompt},
                   {"output", std::max<int64_t>(1, r.request.output_tokens)},
                   {"session", r.request.session}});
  return all;
}

}  // namespace

const config::Key<std::vector<std::string>> kServersKey{
    "servers",
    config::SharedTable::kSweep,
    {},
    config::text_list(check_server),
    "running servers with OpenAI's interface, as \"http://127.0.0.1:8080/v1\""};
const config::Key<std::vector<int64_t>> kUsersKey{
    "users",
    config::SharedTable::kSweep,
    {},
    config::token_list(),
    "closed loops of so many users, for servers; besides the open loop"};

bool asks_servers(const config::Config&, const config::ExperimentConfig& sweep) {
  return !sweep.settings[kServersKey].empty();
}

void add_servers(measure::SweepPoint& point) {
  std::vector<int64_t> loops{0};
  const std::vector<int64_t>& users = settings_of(point)[kUsersKey];
  loops.insert(loops.end(), users.begin(), users.end());
  for (const std::string& url : settings_of(point)[kServersKey]) {
    for (const int64_t loop : loops) {
      measure::PlannedCell& cell = point.cells.emplace_back();
      cell.key = point.key_of(url, "batching " + load_name(loop));
      cell.variant = cell.series = url;
      cell.peer = kServer;
      cell.uncached = true;  // whose cache and codec nobody knows
      cell.columns[kBatching] = load_name(loop);
      refuse(cell, peers::why_absent(kServer));
    }
  }
}

ServerCell::ServerCell(measure::Cell& cell, const measure::SweepPoint& point)
    : point_(point),
      url_(cell.result[results::kVariant]),
      process_(peers::serving(kServer), nothing_.file(), point.threads, kServerPatience) {
  for (const int64_t users : settings_of(point)[kUsersKey]) {
    if (cell.result[kBatching] == load_name(users)) users_ = users;
  }
  model_ = process_.ask({{"do", "about"}, {"url", url_}}).at("model").get<std::string>();
  cell.result[measure::kPeerSettings] = "model " + model_;
}

ServedRun ServerCell::run(std::span<const ServedRequest> requests) {
  const nlohmann::json answers = process_
                                     .ask({{"do", "serve"},
                                           {"url", url_},
                                           {"model", model_},
                                           {"users", users_},
                                           {"sharing", point_.axes[kSharing] == "on"},
                                           {"tokenizer", point_.source->tokenizer()},
                                           {"requests", requests_json(requests)}})
                                     .at("answers");
  const planner::SchedulerSettings limits = with_limits(point_, {});
  ServedRun run;
  planner::ReplayResult& r = run.result;
  double first_sent = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < answers.size(); ++i) {
    const nlohmann::json& answer = answers.at(i);
    ++r.requests;
    if (const std::string error = answer.at("error"); !error.empty()) {
      r.refuse(requests[i].request.session);
      if (error_.empty()) error_ = error;
      continue;
    }
    const double sent = answer.at("sent_s"), first = answer.at("first_s"), last = answer.at("last_s");
    const int64_t tokens = answer.value("tokens", answer.at("pieces").get<int64_t>());
    first_sent = std::min(first_sent, sent);
    r.add(sent, first, last, tokens, requests[i].request.session, limits);
    r.prompt_tokens += answer.value("prompt_tokens", static_cast<int64_t>(requests[i].prompt.size()));
    tells_hits_ &= answer.contains("cached");
    r.found_tokens += answer.value("cached", int64_t{0});
    r.seconds = std::max(r.seconds, last - first_sent);
  }
  return run;
}

}  // namespace kv::experiments
