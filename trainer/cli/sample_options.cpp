#include "trainer/cli/sample_options.h"

namespace meshloom::trainer {

CLI::Option* add_sample_every(CLI::App& command, SampleOptions& sample, const std::string& help) {
  return command.add_option("--sample-every", sample.every, help)
      ->check(CLI::NonNegativeNumber)
      ->type_name("SECONDS");
}

CLI::Option* add_sample_tokens(CLI::App& command, SampleOptions& sample, const std::string& help) {
  return command.add_option("--sample", sample.tokens, help)->check(integer_from(0));
}

ComposeRun composes_with(const SampleOptions& sample, const Registries& registries) {
  return [sample, &catalog = registries.catalog](const TrainerConfig& config, const ComposeOptions& options,
                                                 const hal::DeviceInfo& device) {
    return compose_run(config, options, sample, catalog, device);
  };
}

}  // namespace meshloom::trainer
