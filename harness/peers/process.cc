#include "harness/peers/process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include "harness/io/paths.h"

namespace kv::peers {
namespace {

constexpr int kFloats = 3;  // the file of shared floats in the child

// $KVLAB_PEERS_PYTHON, else the Python installed by `kvlab peers install`.
std::string python() {
  const char* chosen = std::getenv("KVLAB_PEERS_PYTHON");
  return chosen && *chosen ? chosen : (io::project_home() / ".venv-peers" / "bin" / "python").string();
}

// -I hides the user's packages and this folder, whose files share the names of modules that they import.
std::vector<std::string> command(const std::string& peer, const std::string& what) {
  return {python(), "-I", "-B", (io::project_home() / "harness" / "peers" / "serve.py").string(), peer, what};
}

// A child's argument strings, allocated before the fork: the child must not allocate, since a thread may hold the
// lock.
struct Words {
  explicit Words(const std::vector<std::string>& from) : texts(from) {
    for (std::string& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
  }
  std::vector<std::string> texts;
  std::vector<char*> pointers;
};

// A child's environment: ours, with its number of threads. Its waiting threads sleep as soon as ours do.
std::vector<std::string> environment(int threads) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    if (std::strncmp(*entry, "OMP_NUM_THREADS=", 16) != 0) all.emplace_back(*entry);
  }
  all.push_back("OMP_NUM_THREADS=" + std::to_string(threads));
  all.push_back("KMP_BLOCKTIME=1");
  return all;
}

// Runs in the child after fork and uses async-signal-safe calls only.
[[noreturn]] void become(const Words& words, const Words& variables, int in, int out, int errors,
                         int floats) {
  setpgid(0, 0);  // Ctrl-C goes to kvlab, which ends its children
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(in, 0);
  dup2(out, 1);
  dup2(errors, 2);
  if (floats >= 0) dup2(floats, kFloats);
  syscall(SYS_close_range, floats >= 0 ? kFloats + 1 : kFloats, ~0U, 0);
  execve(words.pointers.front(), words.pointers.data(), variables.pointers.data());
  _exit(127);
}

// Moves a file to a number that the child does not use.
int out_of_the_way(int file) {
  const int moved = fcntl(file, F_DUPFD_CLOEXEC, 16);
  close(file);
  return moved;
}

void make_pipe(int& read_end, int& write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw std::runtime_error(std::string("cannot make a pipe: ") + std::strerror(errno));
  read_end = out_of_the_way(ends[0]);
  write_end = out_of_the_way(ends[1]);
}

}  // namespace

bool is_installed(const std::string& peer) {
  if (access(python().c_str(), X_OK) != 0) return false;
  const Words words(command(peer, "installed")), variables(environment(1));
  const int nowhere = out_of_the_way(open("/dev/null", O_RDWR | O_CLOEXEC));
  const pid_t pid = fork();
  if (pid == 0) become(words, variables, nowhere, nowhere, nowhere, -1);
  close(nowhere);
  int status = 0;
  return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

SharedFloats::SharedFloats(int64_t count) : file_(out_of_the_way(memfd_create("kvlab", MFD_CLOEXEC))) {
  try {
    map(std::max<int64_t>(1, count));
  } catch (...) {
    if (file_ >= 0) close(file_);
    throw;
  }
}

SharedFloats::~SharedFloats() {
  munmap(data_, static_cast<size_t>(bytes_));
  close(file_);
}

void SharedFloats::reserve(int64_t count) {
  if (count * static_cast<int64_t>(sizeof(float)) > bytes_) map(count);
}

void SharedFloats::map(int64_t count) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  void* mapped = file_ >= 0 && ftruncate(file_, bytes) == 0
                     ? mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0)
                     : MAP_FAILED;
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  if (data_) munmap(data_, static_cast<size_t>(bytes_));
  data_ = static_cast<float*>(mapped);
  bytes_ = bytes;
}

Command serving(const std::string& peer) {
  return {command(peer, "serve"), "peer '" + peer + "'", "measure.peer_timeout"};
}

Process::Process(const Command& command, int shared, int threads, std::chrono::seconds patience)
    : who_(command.who), setting_(command.setting), patience_(patience) {
  signal(SIGPIPE, SIG_IGN);  // write() reports a process that has ended
  const Words words(command.words), variables(environment(threads));
  int in = -1, out = -1;
  make_pipe(in, to_);
  make_pipe(from_, out);
  errors_ = out_of_the_way(memfd_create("kvlab-errors", MFD_CLOEXEC));
  pid_ = fork();
  if (pid_ == 0) become(words, variables, in, out, errors_, shared);
  close(in);
  close(out);
  if (pid_ < 0) throw std::runtime_error("cannot start " + who_ + ": " + std::strerror(errno));
}

Process::~Process() {
  if (pid_ > 0) {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);  // in case its process group does not exist yet
    waitpid(pid_, nullptr, 0);
  }
  for (const int file : {to_, from_, errors_}) close(file);
}

nlohmann::json Process::ask(const nlohmann::json& request) {
  const std::string line = request.dump() + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t wrote = write(to_, line.data() + done, line.size() - done);
    if (wrote <= 0) fail("ended");
    done += static_cast<size_t>(wrote);
  }
  const std::string text = read_line();
  const nlohmann::json answer = nlohmann::json::parse(text, nullptr, false);
  if (!answer.is_object()) fail("answered '" + text.substr(0, 60) + "', which is not a JSON object");
  if (!answer.contains("error")) return answer;
  const std::string what = answer.value("error", ""), kind = answer.value("kind", "");
  if (kind == "memory") throw std::bad_alloc();
  if (kind == "unsupported") throw std::invalid_argument(what);
  throw std::runtime_error(who_ + " failed: " + what);
}

std::string Process::read_line() {
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  for (;;) {
    const size_t end = read_.find('\n');
    if (end != std::string::npos) {
      std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return line;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{.fd = from_, .events = POLLIN, .revents = 0};
    const int ready =
        left.count() > 0 ? poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left.count(), 1 << 30))) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0)
      fail("did not answer within " + std::to_string(patience_.count()) + " s" +
           (setting_.empty() ? "" : " (" + setting_ + ")"));
    char bytes[4096];
    const ssize_t count = read(from_, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("ended");
    read_.append(bytes, static_cast<size_t>(count));
  }
}

void Process::fail(const std::string& what) {
  const std::string words = last_words();
  has_ended_ = true;
  kill(-pid_, SIGKILL);  // ends it before others are measured
  throw std::runtime_error(who_ + " " + what + (words.empty() ? "" : ": " + words));
}

// The last line on its standard error.
std::string Process::last_words() const {
  char bytes[4096];
  const off_t size = lseek(errors_, 0, SEEK_END);
  const ssize_t count =
      pread(errors_, bytes, sizeof bytes, std::max<off_t>(0, size - static_cast<off_t>(sizeof bytes)));
  std::string text(bytes, static_cast<size_t>(std::max<ssize_t>(0, count)));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const size_t line = text.rfind('\n');
  return line == std::string::npos ? text : text.substr(line + 1);
}

}  // namespace kv::peers
