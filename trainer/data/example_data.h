// A data set of examples.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/examples.h"

namespace meshloom::trainer {

struct ExampleDataOptions {
  std::int64_t sequence = 1;
  double eval_fraction = 0;  // of the examples, held out from the end when `eval` is nullptr
  bool shuffle = true, pack = true;
  std::vector<std::string> notes = {};
  std::int64_t source = 0;  // tokens of a row's source; 0 = examples have none
  TargetFormat target_format = {};
  bool preferences = false, reference = false;
  std::int64_t preferences_per_row = 1;  // at most
};

// `eval` may be nullptr. Throws Error when one of the parts has no example.
std::unique_ptr<Dataset> example_data(std::unique_ptr<Examples> train, std::unique_ptr<Examples> eval,
                                      const ExampleDataOptions& options);

}  // namespace meshloom::trainer
