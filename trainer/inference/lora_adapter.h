// The weights of a LoRA adapter, and the slots of a plan that take them (layers/adapters/lora_slots.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "layers/config/config.h"
#include "trainer/compose/plan.h"
#include "trainer/config/trainer_config.h"
#include "trainer/execute/session.h"

namespace meshloom::trainer {

struct LoraAdapter {
  struct Layer {
    std::int64_t rank = 0;
    std::vector<float> a, b;  // (rank, input), and (output, rank) times alpha / rank
  };
  std::map<std::string, Layer> layers;  // by the path of the adapted layer
};

// Puts LoraSlots around every Linear of a model but those of mixtures of experts. Throws Error where there is none.
void add_lora_slots(TrainerConfig& config, std::int64_t slots, std::int64_t rank,
                    const layers::ClassTable& classes);

struct LoraSlotsOfPlan {
  struct Layer {
    std::int64_t input = 0, output = 0;
  };
  std::int64_t slots = 0, rank = 0;     // 0 = the model has none
  std::map<std::string, Layer> layers;  // by path
  std::int64_t bytes = 0;               // of all slots
};
LoraSlotsOfPlan lora_slots_of(const Plan& plan);

// Throws Error (where = `where`) where a layer of the adapter has no slots, or another size or a larger rank than they have.
void check_fits(const LoraAdapter& adapter, const LoraSlotsOfPlan& slots, const std::string& where);
// Fills one slot: layers that the adapter lacks, and ranks that it does not use, with zeros.
void write_adapter(Session& session, const LoraSlotsOfPlan& slots, std::int32_t slot,
                   const LoraAdapter& adapter);

}  // namespace meshloom::trainer
