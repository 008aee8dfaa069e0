#include "trainer/learner/adamw.h"

namespace meshloom::trainer {

void add_learner_classes(layers::ClassTable& classes) {
  classes.add<AdamW::Config>();
  classes.add<Constant::Config>();
  classes.add<WarmupCosine::Config>();
}

}  // namespace meshloom::trainer
