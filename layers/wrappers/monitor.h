// A wrapper that reports numbers about the output of a layer as summaries (metrics.jsonl, TensorBoard). It changes
// nothing.
#pragma once

#include <string>
#include <vector>

#include "layers/core/inference_config.h"
#include "layers/core/layer.h"
#include "layers/core/linear.h"

namespace meshloom::layers {

// Wrap{with=Monitor{} slot=base where="**.{attention,feed_forward}"} reports in training, at the path of each layer:
//   rms        the root mean square of the elements of its output
//   input_rms  that of its input
//   gain       rms / input_rms
// Rows of padding do not count, except among the rows of experts and of the chunks of a loss, where padding is not
// known.
class Monitor : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config>, TrainingOnly {
    static constexpr std::string_view kName = "Monitor";
    static constexpr std::string_view kAbout =
        "Reports the root mean squares of a layer's output and input; changes nothing.";
    Child<Layer::Config> base = Linear::Config{};
    std::vector<std::string> report{"rms", "input_rms"};

    void fields(FieldVisitor& v) override {
      v("base", base, {"The layer inside.", means("layer inside a wrapper")});
      v("report", report,
        {"What is reported per step: root mean squares of the layer's output and input, and their ratio.",
         one_of("rms", "input_rms", "gain")});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> inference_config() const override { return base->clone(); }
  };

  Monitor(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  Layer* base_;
  std::vector<std::string> report_;
};

}  // namespace meshloom::layers
