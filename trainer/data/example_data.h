// Data that is made of examples.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/data/data.h"
#include "trainer/data/examples.h"

namespace meshloom::trainer {

struct ExampleDataOptions {
  std::int64_t sequence = 1;
  double eval_fraction = 0;  // of the examples, from the end; held out where there is no `eval`
  bool shuffle = true, pack = true;
  std::vector<std::string> notes = {};
  std::int64_t source = 0;  // tokens of a row's source; 0 = the examples have none
  TargetFormat learned = {};
};

// `eval` may be nullptr. Throws Error when a part would have no example.
std::unique_ptr<Data> example_data(std::unique_ptr<Examples> train, std::unique_ptr<Examples> eval,
                                   const ExampleDataOptions& options);

}  // namespace meshloom::trainer
