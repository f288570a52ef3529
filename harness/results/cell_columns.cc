#include "harness/results/cell_columns.h"

namespace kv::results {

Row row_of(const Row& cell) {
  Row row;
  row.copy(cell, {&kCell, &kVariant, &kBatch, &kSeqLen});
  return row;
}

}  // namespace kv::results
