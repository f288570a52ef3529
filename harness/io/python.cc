#include "harness/io/python.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "harness/io/paths.h"

extern char** environ;

namespace kv::io {
namespace {

// Starts a program whose standard output is `out`, or ours if that is negative. Returns its id, or -1.
pid_t start(std::vector<std::string> words, int out) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (out >= 0) posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  pid_t child = -1;
  const int error = posix_spawn(&child, argv.front(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? child : -1;
}

std::string read_all(int file) {
  std::string text;
  char bytes[4096];
  for (ssize_t count = 0; (count = read(file, bytes, sizeof bytes)) != 0;) {
    if (count > 0) {
      text.append(bytes, static_cast<size_t>(count));
    } else if (errno != EINTR) {
      break;
    }
  }
  return text;
}

}  // namespace

std::string project_python() {
  const char* chosen = std::getenv("KVLAB_PYTHON");
  if (chosen && *chosen) return chosen;
  const std::filesystem::path own = project_home() / ".venv" / "bin" / "python";
  return access(own.c_str(), X_OK) == 0 ? own.string() : "";
}

int run_python(const std::string& script, const std::vector<std::string>& arguments, std::string* output) {
  std::vector<std::string> words{project_python(), (project_home() / script).string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  int ends[2] = {-1, -1};
  if (output && pipe2(ends, O_CLOEXEC) != 0) return -1;
  const pid_t child = start(std::move(words), ends[1]);
  if (output) {
    close(ends[1]);
    if (child > 0) *output = read_all(ends[0]);
    close(ends[0]);
  }
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace kv::io
