#include "harness/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>

namespace kv::cli {

size_t terminal_width() {
  const char* columns = std::getenv("COLUMNS");
  if (const int width = columns ? std::atoi(columns) : 0; width > 0) return static_cast<size_t>(width);
  winsize size{};
  if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  return std::numeric_limits<size_t>::max();
}

}  // namespace kv::cli
