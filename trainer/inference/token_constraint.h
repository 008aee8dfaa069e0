// Says which tokens may come next in one text.
#pragma once

#include <cstdint>
#include <span>

namespace meshloom::trainer {

// Of one request, whose engine calls it on its thread: allowed() before each token is drawn, accept() after it. What it knows
// depends on the tokens alone, so that a text that was preempted goes on as it was.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // One bit for each token, the bits of 64 tokens in a word; ids past the last word are not allowed. Valid until the next call.
  // Throws Error when no token is allowed.
  virtual std::span<const std::uint64_t> allowed() = 0;
  // Throws Error for a token that was not allowed.
  virtual void accept(std::int32_t id) = 0;
  // Whether nothing may follow; allowed() is not called any more.
  virtual bool ended() const = 0;
};

}  // namespace meshloom::trainer
