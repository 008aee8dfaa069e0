// How the ranks of a job run one training: rank 0 runs it and says what is next, the others do their part of it. Only rank 0
// writes files, shows progress and hears signals.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hal/device.h"
#include "hal/transport/transport.h"
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
    save,      // save_pieces()
    end        //
  } kind = Kind::end;
  std::int64_t value = 0;
};

// Shares the cores out among so many ranks of a host that compute on the CPU, unless the user did. To be called before the first
// device is opened.
void share_cores(std::int64_t ranks);

// The values of which rank 0 gathers the parts of others; the same on every rank.
std::vector<std::string> gathered_values(const Plan& plan);
// Rank 0 tells all others what is next; nothing without a transport.
void tell(hal::Transport* transport, RankCommand command);
// What rank 0 told. Waits without an end.
RankCommand listen(hal::Transport& transport);

// Every rank calls it before it composes, with what it will do. Throws AgreedError that names the first
// thing in which a rank differs from rank 0: program, data, or a field of the recipe (field_rules.h) with both values.
void require_agreement(hal::Transport& transport, const TrainerConfig& config, std::uint64_t data,
                       double patience);
// Every rank calls it with its plan. Throws AgreedError where the ranks of a group do not move the same
// between them in the same order.
void require_same_moves(hal::Transport& transport, const Plan& plan, const kernels::Catalog& catalog,
                        double patience);
// Every rank calls it with its device, whether --rank-devices names that by its index, and its hardware's name. Throws AgreedError
// where two ranks of a host share a GPU that was not named so for both. Returns which device each rank has, in words; "" where
// all have the same.
std::string require_own_devices(hal::Transport& transport, const hal::DeviceInfo& device, bool named,
                                const std::string& hardware, double patience);

// Does the part of a rank other than 0, until rank 0 ends. Throws what a run throws.
void follow(const TrainerConfig& config, const TrainOptions& options, hal::Device& device,
            const kernels::Catalog& catalog, const layers::ClassTable& classes);

}  // namespace meshloom::trainer
