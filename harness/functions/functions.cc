#include "harness/functions/functions.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <type_traits>

#include "harness/io/paths.h"
#include "harness/io/python.h"
#include "harness/peers/process.h"

namespace kv::functions {
namespace {

constexpr std::chrono::seconds kPatience{600};

class Function : public UserFunction {
 public:
  explicit Function(const std::string& function)
      : words_({io::project_python(), "-B", (io::project_home() / "harness/functions/call.py").string(),
                file_of(function).string(), function.substr(function.rfind(':') + 1)}),
        who_("python(" + function + ")") {
    if (words_.front().empty())
      throw std::invalid_argument(who_ + ": there is no Python; $KVLAB_PYTHON names one that has NumPy");
    start();
  }

  std::vector<float> score(const TokensToScore& tokens) override {
    return in_process([&] { return ask(tokens); });
  }
  int64_t recode(std::span<float> rows, int row_values) override {
    return in_process([&] {
      floats_.reserve(std::ssize(rows));
      std::ranges::copy(rows, floats_.data());
      const nlohmann::json answer =
          process_->ask({{"do", "recode"}, {"rows", std::ssize(rows) / row_values}, {"dim", row_values}});
      std::copy_n(floats_.data(), rows.size(), rows.begin());
      return answer.at("bytes").get<int64_t>();
    });
  }

 private:
  template <class Asked>
  std::invoke_result_t<const Asked&> in_process(const Asked& asked) {
    const std::lock_guard lock(mutex_);
    try {
      if (!process_) start();
      return asked();
    } catch (...) {
      process_.reset();  // the next cell's has seen nothing of it
      throw;
    }
  }
  void start() {
    process_ =
        std::make_unique<peers::Process>(peers::Command{words_, who_, ""}, floats_.file(), 1, kPatience);
    process_->ask({{"do", "open"}});
  }

  std::vector<float> ask(const TokensToScore& tokens) {
    static_assert(sizeof(int32_t) == sizeof(float));
    const auto rows = static_cast<size_t>(tokens.kv_heads * tokens.tokens);
    floats_.reserve(std::ssize(tokens.k) + std::ssize(tokens.v) + 3 * static_cast<int64_t>(rows));
    float* to = std::copy(tokens.k.begin(), tokens.k.end(), floats_.data());
    to = std::copy(tokens.v.begin(), tokens.v.end(), to);
    to = std::copy(tokens.attention.begin(), tokens.attention.end(), to);
    std::memcpy(to, tokens.position.data(), rows * sizeof(float));
    process_->ask({{"do", "score"},
                   {"kv_heads", tokens.kv_heads},
                   {"tokens", tokens.tokens},
                   {"key_dim", tokens.key_dim},
                   {"value_dim", tokens.value_dim},
                   {"weighs", !tokens.attention.empty()}});
    return {to + rows, to + 2 * rows};
  }

  const std::vector<std::string> words_;
  const std::string who_;
  std::mutex mutex_;
  peers::SharedFloats floats_{1};
  std::unique_ptr<peers::Process> process_;
};

}  // namespace

std::filesystem::path file_of(const std::string& function) {
  const size_t colon = function.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == function.size())
    throw std::invalid_argument(
        "python takes a file and its function, as in python(policy.py:score), and python_codec a file, as in "
        "python_codec(codec.py), not '" +
        function + "'");
  return io::find_input(function.substr(0, colon), "functions in Python");
}

std::shared_ptr<UserFunction> open(const std::string& function) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<UserFunction>> all;
  const std::lock_guard lock(mutex);
  std::shared_ptr<UserFunction> found = all[function].lock();
  if (!found) all[function] = found = std::make_shared<Function>(function);
  return found;
}

}  // namespace kv::functions
