// Cells of running servers (harness/peers/server.py): they are sent the requests of a point and are timed from outside.
#pragma once

#include <string>
#include <vector>

#include "harness/config/key.h"
#include "harness/experiments/serve/serving.h"
#include "harness/measure/cell.h"
#include "harness/peers/process.h"

namespace kv::experiments {

extern const config::Key<std::vector<std::string>> kServersKey;
extern const config::Key<std::vector<int64_t>> kUsersKey;

bool asks_servers(const config::Config& config, const config::ExperimentConfig& sweep);

// Adds a cell a server in open loop, and one for each number of users.
void add_servers(measure::SweepPoint& point);

class ServerCell {
 public:
  // Throws std::invalid_argument where no server answers.
  ServerCell(measure::Cell& cell, const measure::SweepPoint& point);
  // Sends the requests once. The result has what is seen from outside: times, tokens, good requests, refused ones (errors), and
  // prompt tokens that the server says it did not read.
  ServedRun run(std::span<const ServedRequest> requests);
  // The first error of any run; empty without one. True if every answer said how much of its prompt was not read.
  const std::string& error() const { return error_; }
  bool tells_hits() const { return tells_hits_; }

 private:
  const measure::SweepPoint& point_;
  const std::string url_;
  int64_t users_ = 0;
  peers::SharedFloats nothing_{1};
  peers::Process process_;
  std::string model_, error_;
  bool tells_hits_ = true;
};

}  // namespace kv::experiments
