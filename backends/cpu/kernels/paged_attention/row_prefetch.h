// Asks memory for the rows of a tile that is read later, in the order of addresses and a few lines at a time while other rows are read: a
// core keeps few requests, and answers to neighbours come several times faster than those to parts of rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/flash_attention/mask.h"
#include "kernels/paged_attention/paged_attention.h"

namespace meshloom::backends::cpu {

class RowPrefetch {
 public:
  // Rows of `row_bytes` bytes in a pool; both must outlive this.
  RowPrefetch(const kernels::PagedAttentionDims& dims, const std::int32_t* page_table, const std::byte* pool,
              std::int64_t row_bytes)
      : dims_(dims), page_table_(page_table), pool_(pool), row_bytes_(row_bytes) {}

  // Those of kv heads [kv, kv + kv_heads) of these keys of sequence r.
  void set(std::int64_t r, std::int64_t kv, std::int64_t kv_heads, kernels::Range keys) {
    r_ = r, kv_ = kv, left_ = keys;
    bytes_ = at_ = kv_heads * row_bytes_;
  }

  // Asks for as many lines as a row of one head has.
  void next() {
    constexpr std::int64_t kLine = 64;  // bytes
    for (std::int64_t line = 0; line < row_bytes_; line += kLine, at_ += kLine) {
      if (at_ >= bytes_) {
        if (left_.begin >= left_.end) return;
        row_ = pool_ + dims_.row_of(page_table_, r_, left_.begin++, kv_) * row_bytes_;
        at_ = 0;
      }
      __builtin_prefetch(row_ + at_, 0, 2);
    }
  }

 private:
  const kernels::PagedAttentionDims& dims_;
  const std::int32_t* page_table_;
  const std::byte *pool_, *row_ = nullptr;
  std::int64_t row_bytes_, r_ = 0, kv_ = 0, bytes_ = 0, at_ = 0;
  kernels::Range left_{0, 0};
};

}  // namespace meshloom::backends::cpu
