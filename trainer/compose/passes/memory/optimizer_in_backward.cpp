#include "trainer/compose/passes/memory/optimizer_in_backward.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "trainer/compose/graph.h"

namespace meshloom::trainer {

using kernels::Call;
using kernels::ValueId;

kernels::Program optimizer_in_backward(kernels::Program program, const kernels::Catalog& catalog) {
  const Graph graph(program);
  const std::vector<ValueId> roots = view_roots(program, catalog);
  std::vector<std::vector<int>> readers(program.values.size());  // by root
  for (std::size_t v = 0; v < roots.size(); ++v)
    readers[at(roots[v])].insert(readers[at(roots[v])].end(), graph.readers[v].begin(),
                                 graph.readers[v].end());
  std::map<ValueId, ValueId> overwritten;  // the input whose storage an output takes
  for (const kernels::Donation& donation : program.donations) overwritten[donation.output] = donation.input;

  const int count = static_cast<int>(program.calls.size());
  const auto updates = [&](int i) { return program.calls[at(i)].phase == kernels::Phase::update; };
  std::vector<int> behind(at(count));  // by call: the call of another phase that it follows
  for (int i = 0; i < count; ++i) {
    behind[at(i)] = i;
    if (!updates(i)) continue;
    int last = -1;
    for (const ValueId id : program.calls[at(i)].inputs)
      if (const int definition = graph.definition_of(id); definition >= 0)
        last = std::max(last, behind[at(definition)]);
    for (const ValueId id : program.calls[at(i)].outputs)
      if (const auto found = overwritten.find(id); found != overwritten.end())
        for (const int reader : readers[at(roots[at(found->second)])])
          if (reader < i) last = std::max(last, behind[at(reader)]);
    behind[at(i)] = last;
  }
  // What is made of nothing that is computed need not be there before it is read.
  for (int i = count; i-- > 0;) {
    if (!updates(i) || behind[at(i)] >= 0) continue;
    int first = count;
    for (const ValueId id : program.calls[at(i)].outputs)
      for (const int reader : graph.readers_of(id)) first = std::min(first, behind[at(reader)]);
    behind[at(i)] = first == count ? count - 1 : first;
  }

  std::vector<int> order(at(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::pair(behind[at(a)], updates(a)) < std::pair(behind[at(b)], updates(b));
  });
  std::vector<Call> calls;
  for (const int i : order) calls.push_back(std::move(program.calls[at(i)]));
  program.calls = std::move(calls);
  return program;
}

}  // namespace meshloom::trainer
