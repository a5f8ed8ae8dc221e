// Whose rows are whose, where requests have several query tokens.
#pragma once

/// A row among its request's new tokens: rows [first, first + count), of which it is `index`.
struct QueryRow {
  long long request, first, count, index; ///< request -1: of none
};

/// Row `row` of `rows`. Without starts row r is request r's. Starts outside of [0, rows], or below the one
/// before, count as the nearest that is possible and set `outOfBound` in the status.
__device__ inline QueryRow queryRow(const int *starts, long long requests, long long rows, long long row,
                                    unsigned *status, unsigned outOfBound) {
  if (!starts)
    return {row, row, 1, 0};
  long long request = -1, first = 0, end = -1, before = 0;
  bool possible = true;
  for (long long r = 0; r <= requests; ++r) {
    long long start = starts[r];
    possible = possible && start >= before && start <= rows;
    start = start > rows ? rows : start;
    before = start > before ? start : before;
    if (before <= row) {
      request = r;
      first = before;
    } else if (end < 0) {
      end = before;
    }
  }
  if (!possible)
    atomicOr(status, outOfBound);
  if (request < 0 || end < 0)
    return {-1, 0, 0, 0};
  return {request, first, end - first, row - first};
}
