// Around other layers: numbers about what they give, reported as summaries (metrics.jsonl, TensorBoard).
// Changes nothing.
#pragma once

#include <string>
#include <vector>

#include "layers/core/inference_config.h"
#include "layers/core/layer.h"
#include "layers/core/linear.h"

namespace meshloom::layers {

// Wrap{with=Monitor{} slot=base where="**.{attention,feed_forward}"} reports, in training, at the path of
// each:
//   rms       root of the mean square of the elements of what `base` gives
//   input_rms the same of what it takes
//   gain      rms / input_rms
// Rows of padding do not count; among the rows of experts, and of slices of a loss, nothing is known of padding.
class Monitor : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config>, ForTraining {
    static constexpr std::string_view kName = "Monitor";
    static constexpr std::string_view kAbout =
        "Reports the size of what a layer gives and takes; changes nothing.";
    Child<Layer::Config> base = Linear::Config{};
    std::vector<std::string> report{"rms", "input_rms"};

    void fields(FieldVisitor& v) override {
      v("base", base, {"The layer that it stands around.", means("layer inside a wrapper")});
      v("report", report,
        {"What is reported per step: root mean squares of what the layer gives and takes, and their ratio.",
         one_of("rms", "input_rms", "gain")});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> in_use() const override { return base->clone(); }
  };

  Monitor(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  Layer* base_;
  std::vector<std::string> report_;
};

}  // namespace meshloom::layers
