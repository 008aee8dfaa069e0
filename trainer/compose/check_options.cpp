#include "trainer/compose/check_options.h"

#include <cstdint>
#include <limits>
#include <string>

#include "hal/error.h"
#include "layers/config/tree.h"

namespace meshloom::trainer {
namespace {

void require(bool good, const std::string& option, const std::string& rule, std::int64_t found) {
  if (!good) throw hal::Error("option " + option, rule, std::to_string(found));
}

// What keeps gradients until all are known.
void check_in_backward(const ComposeOptions& options, const Learner::Config& learner) {
  if (!options.optimizer_in_backward) return;
  const auto refuse = [](const std::string& rule, const std::string& found) {
    throw hal::Error("optimizer_in_backward", rule, found);
  };
  if (learner.clip_norm > 0)
    refuse("needs a learner that does not clip, because the norm is known after the last gradient",
           "learner.clip_norm=" + layers::get(learner, "clip_norm"));
  if (options.accumulation > 1)
    refuse("needs a step of one micro-batch, because sums of gradients are kept",
           "accumulation=" + std::to_string(options.accumulation));
  if (options.dtype == kernels::DType::f16)
    refuse("needs no loss scale, because a step that overflows must change nothing", "dtype=f16");
  if (options.offload_optimizer) refuse("needs the optimizer on the device", "offload_optimizer=true");
}

void check_param_dtype(const ComposeOptions& options) {
  const kernels::DType dtype = options.param_dtype;
  if (dtype != kernels::DType::f32 && dtype != kernels::DType::bf16)
    throw hal::Error("param_dtype", "must be f32 or bf16", std::string(hal::to_string(dtype)));
  if (dtype == kernels::DType::bf16 && options.offload_optimizer)
    throw hal::Error("param_dtype", "bf16 needs the optimizer on the device, where updates are rounded",
                     "offload_optimizer=true");
}

void check_decode(const DecodeOptions& options) {
  if (options.tokens.empty()) return;
  for (const std::int64_t tokens : options.tokens)
    require(tokens >= 1 && tokens <= std::numeric_limits<int>::max(), "decode.tokens", "must be at least 1",
            tokens);
  require(options.sequences >= 1, "decode.sequences", "must be at least 1", options.sequences);
  require(options.rows >= 1, "decode.rows", "must be at least 1", options.rows);
  require(options.length >= 1, "decode.length", "must be at least 1", options.length);
  require(options.page_size >= 1, "decode.page_size", "must be at least 1", options.page_size);
  require(options.source >= 0, "decode.source", "must be at least 0", options.source);
  require(options.pages >= 0, "decode.pages", "must be at least 0", options.pages);
}

void check_logits(const ComposeOptions& options) {
  check_param_dtype(options);
  check_decode(options.decode);
  require(options.logits_batch >= 0, "logits_batch", "must be at least 0", options.logits_batch);
  require(options.logits_sequence >= 0, "logits_sequence", "must be at least 0", options.logits_sequence);
  require(options.logits_source >= 0, "logits_source", "must be at least 0", options.logits_source);
  if ((options.logits_batch > 0) != (options.logits_sequence > 0))
    throw hal::Error(
        "options logits_batch and logits_sequence", "must both be given or both be 0",
        std::to_string(options.logits_batch) + " and " + std::to_string(options.logits_sequence));
}

}  // namespace

void check_training(const ComposeOptions& options, const Learner::Config& learner) {
  require(options.batch >= 1, "batch", "must be at least 1", options.batch);
  require(options.sequence >= 1, "sequence", "must be at least 1", options.sequence);
  require(options.accumulation >= 1, "accumulation", "must be at least 1", options.accumulation);
  require(options.batch % options.accumulation == 0, "accumulation",
          "must divide the batch of " + std::to_string(options.batch) + " rows", options.accumulation);
  require(options.source >= 0, "source", "must be at least 0", options.source);
  check_logits(options);
  learner.check();
  check_in_backward(options, learner);
}

void check_inference(const ComposeOptions& options) {
  check_logits(options);
  if (options.decode.tokens.empty())
    require(options.logits_batch >= 1, "logits_batch", "must be at least 1 to compose for inference",
            options.logits_batch);
}

void check_several_ranks(const ComposeOptions& options, const Topology& mesh) {
  const auto refuse = [&](const std::string& option) {
    throw hal::Error("mesh " + mesh.text(), "several ranks are not built yet for this option", option);
  };
  if (options.offload_optimizer) refuse("offload_optimizer=true");
  if (options.optimizer_in_backward) refuse("optimizer_in_backward=true");
  if (options.param_dtype != kernels::DType::f32)
    refuse("param_dtype=" + std::string(hal::to_string(options.param_dtype)));
  if (options.gradient_dtype != kernels::DType::f32 && options.dtype == kernels::DType::f16)
    throw hal::Error(
        "mesh.gradient_dtype",
        "must be f32 where the loss is scaled, because what rounding lost of a gradient would have "
        "another scale in a later step",
        "dtype=f16");
}

void check_islands(const ComposeOptions& options, const Topology& mesh) {
  const std::int64_t islands = mesh.size(AxisName::islands);
  const std::string where = "mesh " + mesh.text();
  if (mesh.size(AxisName::pipeline) > 1)
    throw hal::Error(where, "islands are not built yet for this axis", "pipeline");
  if (options.rows() % islands != 0)
    throw hal::Error(
        where, "the rows of a micro-batch must be a multiple of its " + std::to_string(islands) + " islands",
        std::to_string(options.rows()) + " rows");
}

void check_states_of_islands(const Plan& plan, const Learner::Config& learner) {
  const std::string where = "mesh " + plan.mesh.text(), rule = "islands are not built yet for ";
  if (!plan.states.empty())
    throw hal::Error(where, rule + "models with states beside their parameters", plan.states.front().first);
  if (learner.ema) throw hal::Error(where, rule + "moving averages", "learner.ema");
}

}  // namespace meshloom::trainer
