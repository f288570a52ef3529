// A step of few queries over rows that come in pieces and rows that are in memory.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "variants/core/placement.h"

namespace kv {

// One span a head.
void find_spans(const Piece& piece, const UnitLayout& unit, int heads, std::vector<Span>& out);

// All threads take what is there, a head of a piece or some rows of a head that are in memory, until nothing is left: in
// one parallel region, since a team that meets after each piece waits for its slowest thread, and spins on the processors
// that the reading needs. Threads that find nothing sleep.
class StreamedDecode {
 public:
  // Placement::stream() of the sequences that the problems belong to.
  using Stream = std::function<void(const PieceVisitor& visit, const OtherWork& meanwhile)>;

  static size_t workspace_bytes(std::span<const HeadQueries> problems, int head_dim);
  // Problems that take pieces in any order (kernels/piece_order.h), `heads` of each input. Their spans are the rows from
  // the input's `first_rows` on, a multiple of kSplitRows. The workspace is 64-byte aligned.
  // `unit` is how the pieces are stored.
  StreamedDecode(std::span<const HeadQueries> problems, const UnitLayout& unit, int heads,
                 std::span<const int64_t> first_rows, int head_dim, std::byte* workspace);

  // Throws what the stream throws; outputs are not written then.
  void run(const Stream& stream);

 private:
  struct Head {
    PiecewiseAttention attention;  // this problem alone
    bool busy = false;             // it works on one piece at a time
    size_t next_span = 0;          // the rows in memory
    int64_t next_row;
  };
  struct Came {
    size_t input = 0;
    int64_t begin = 0, end = 0;
    std::vector<Span> spans;  // by head
    std::vector<bool> taken;
    int left = 0;  // heads that are not done
  };
  struct Task {
    PiecewiseAttention::Piece piece;
    Came* came;  // null: rows in memory
  };
  using Lock = std::unique_lock<std::mutex>;

  void visit(size_t input, const Piece& piece);
  void help(Lock& lock, const std::function<bool()>& enough);
  std::optional<Task> take();
  std::optional<Task> take_of(Came& came);
  std::optional<Task> take_resident(size_t problem);
  bool is_resident_left(size_t problem) const;
  bool is_all_done() const;
  void work_on(const Task& task, Lock& lock);

  std::span<const HeadQueries> problems_;
  const UnitLayout& unit_;
  const int heads_;
  std::vector<Head> heads_of_all_;  // by problem

  std::mutex mutex_;
  std::condition_variable news_;
  std::array<Came, 2> came_;  // the newest pieces, in turns
  size_t pieces_ = 0;
  size_t next_resident_ = 0;  // the problem that is asked first
  int working_ = 0;           // threads
  bool all_came_ = false;
};

}  // namespace kv
