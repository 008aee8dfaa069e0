#include "trainer/learner/adamw.h"

namespace meshloom::trainer {

void add_learner_classes(layers::ClassTable& classes) {
  classes.add<AdamW::Config>();
  classes.add<ConstantSchedule::Config>();
  classes.add<WarmupCosine::Config>();
}

}  // namespace meshloom::trainer
