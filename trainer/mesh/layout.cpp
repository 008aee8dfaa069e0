#include "trainer/mesh/layout.h"

#include <algorithm>
#include <utility>

namespace meshloom::trainer {

bool Layout::is_whole() const { return range.count == whole.elements(); }

Layout whole_layout(kernels::TensorType type) {
  Layout layout;
  layout.begin.assign(type.shape.size(), 0);
  layout.extent = type.shape;
  layout.range = {0, type.elements()};
  layout.whole = std::move(type);
  return layout;
}

void for_runs(const Layout& layout,
              const std::function<void(std::int64_t whole, std::int64_t part, std::int64_t count)>& visit) {
  // The innermost dimensions that the box has whole, and one more, are one run; if it is that of two runs, they are two.
  const kernels::Shape& shape = layout.whole.shape;
  std::size_t outer = shape.size();
  std::int64_t run = 1,
               inner = 1;  // elements of a run in the box; of the dimensions behind `outer` in the whole
  while (outer > 0) {
    --outer;
    run *= layout.extent[outer];
    if (layout.extent[outer] != shape[outer]) break;
    inner *= shape[outer];
  }
  const auto has_two = [&](std::size_t d) { return static_cast<int>(d) == layout.two_runs; };
  // Of dimension d of the box.
  const auto place = [&](std::size_t d, std::int64_t i) {
    const std::int64_t half = layout.extent[d] / 2;
    return has_two(d) && i >= half ? layout.second + i - half : layout.begin[d] + i;
  };
  const std::int64_t runs = !shape.empty() && has_two(outer) ? 2 : 1;
  run /= runs;
  const std::int64_t end = layout.range.first + layout.range.count;
  for (std::int64_t at = layout.range.first; at < end;) {
    const std::int64_t within = at % run, count = std::min(run - within, end - at);
    // The place of the run in the whole: the digits of its number, by the dimensions in front.
    std::int64_t number = at / run, whole = 0;
    if (!shape.empty()) {
      std::int64_t stride = inner * shape[outer];
      whole = place(outer, number % runs * (layout.extent[outer] / runs)) * inner;
      number /= runs;
      for (std::size_t d = outer; d-- > 0;) {
        whole += place(d, number % layout.extent[d]) * stride;
        number /= layout.extent[d];
        stride *= shape[d];
      }
    }
    visit(whole + within, at - layout.range.first, count);
    at += count;
  }
}

}  // namespace meshloom::trainer
