// Guesses the next tokens by a smaller model of the same vocabulary (Leviathan et al., 2023; Chen et al., 2023). It draws by the same
// random numbers as the model that it guesses for, so that a good draft model draws the same tokens.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "trainer/inference/engine.h"
#include "trainer/inference/model_runner.h"
#include "trainer/inference/page_pool.h"
#include "trainer/inference/scheduler.h"
#include "trainer/inference/speculator.h"

namespace meshloom::trainer {

class DraftModel : public Speculator {
 public:
  // Composes, allocates and reads the parameters. `options` are those of the engine, whose longest sequence is `max_length`: the
  // draft model keeps as many pages. The device and the catalog must outlive it. Throws what Engine's constructor throws.
  DraftModel(const TrainerConfig& config, EngineOptions options, std::int64_t max_length, hal::Device& device,
             const kernels::Catalog& catalog, const StoredTensors& weights);

  std::int64_t vocabulary() const { return runner_.vocabulary(); }
  // Sequences whose text it has not computed yet get no tokens at first: each call computes a step's worth of them.
  std::vector<std::vector<std::int32_t>> propose(std::span<const DraftRequest> requests,
                                                 std::int64_t budget) override;
  void finished(RequestId id) override;

 private:
  struct Draft {
    Sequence* sequence;
    const DraftRequest* request;
    std::int64_t most;
    std::vector<std::int32_t>* proposed;
  };
  // Nothing where the model keeps rows of each sequence and all are taken.
  Sequence* follow(const DraftRequest& request);
  bool take_pages(Sequence& sequence, std::int64_t tokens);
  void step(std::vector<Draft>& drafts);

  EngineOptions options_;
  ModelRunner runner_;
  PagePool pool_;
  std::map<RequestId, Sequence> sequences_;
  std::vector<std::int32_t> free_ids_;  // Sequence::sequence_id of none of them
};

}  // namespace meshloom::trainer
