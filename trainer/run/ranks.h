// How the ranks of a job run one training: rank 0 runs it and says what is next, the others do their part of it. Only rank 0
// writes files, shows progress and hears signals.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hal/transport.h"
#include "kernels/core/catalog.h"
#include "trainer/compose/plan.h"
#include "trainer/run/train.h"

namespace meshloom::trainer {

struct RankCommand {
  enum class Kind : std::uint8_t {
    start,     // the run begins; value: 1 = from its newest checkpoint
    step,      // of this number, from 0
    evaluate,  //
    send,      // the part of the value with this index in gathered_values()
    end        //
  } kind = Kind::end;
  std::int64_t value = 0;
};

// The values of which rank 0 gathers the parts of others; the same on every rank.
std::vector<std::string> gathered_values(const Plan& plan);
// Shares the cores out among the ranks of a host, unless the user did. To be called before the first device is opened.
void share_cores(int ranks);

// Rank 0 tells all others what is next; nothing without a transport.
void tell(hal::Transport* transport, RankCommand command);
// What rank 0 told. Waits without an end.
RankCommand listen(hal::Transport& transport);

// Every rank calls it before the first step, with what it will do. Throws Error that names the first thing in which a rank
// differs from rank 0: program, recipe, data.
void require_agreement(hal::Transport& transport, const TrainerConfig& config, std::uint64_t data,
                       double patience);

// Does the part of a rank other than 0, until rank 0 ends. Throws what a run throws.
void follow(const TrainerConfig& config, const TrainOptions& options, hal::Device& device,
            const kernels::Catalog& catalog, const layers::ClassTable& classes);

}  // namespace meshloom::trainer
