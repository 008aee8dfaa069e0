#include "trainer/execute/gather_texts.h"

#include <array>
#include <numeric>
#include <span>

#include "trainer/execute/exchange.h"
#include "trainer/mesh/tags.h"

namespace meshloom::trainer {
namespace {

void gather_bytes(hal::Transport& transport, const std::vector<std::int64_t>& sizes,
                  std::span<const std::byte> own, std::span<std::byte> all, double patience) {
  // exchange() only reads what is sent.
  const std::span<std::byte> sent(const_cast<std::byte*>(own.data()), own.size());
  const std::array<std::span<std::byte>, 2> tensors{sent, all};  // kInput, kOutput
  exchange(transport, all_ranks(transport), kernels::collective::all_gather(sizes, transport.rank()), tensors,
           {kTextTag, "gather_texts", "the job"}, patience);
}

}  // namespace

std::vector<std::string> gather_texts(hal::Transport& transport, const std::string& own, double patience) {
  const auto ranks = static_cast<std::size_t>(transport.size());
  const auto size = static_cast<std::int64_t>(own.size());
  std::vector<std::int64_t> sizes(ranks);
  gather_bytes(transport, std::vector<std::int64_t>(ranks, sizeof size), std::as_bytes(std::span(&size, 1)),
               std::as_writable_bytes(std::span(sizes)), patience);
  std::string all(static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})), 0);
  gather_bytes(transport, sizes, std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)),
               patience);
  std::vector<std::string> texts;
  for (std::size_t at = 0; const std::int64_t bytes : sizes) {
    texts.push_back(all.substr(at, static_cast<std::size_t>(bytes)));
    at += static_cast<std::size_t>(bytes);
  }
  return texts;
}

}  // namespace meshloom::trainer
