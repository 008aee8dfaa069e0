#include "trainer/learner/adafactor.h"
#include "trainer/learner/adam.h"
#include "trainer/learner/adamw.h"
#include "trainer/learner/lion.h"
#include "trainer/learner/muon.h"
#include "trainer/learner/schedules.h"
#include "trainer/learner/sgd.h"

namespace meshloom::trainer {

void add_learner_classes(layers::ClassTable& classes) {
  classes.add<ParameterGroup>();
  classes.add<Ema>();
  classes.add<AdamW::Config>();
  classes.add<Adam::Config>();
  classes.add<AdamWIndependent::Config>();
  classes.add<Sgd::Config>();
  classes.add<Lion::Config>();
  classes.add<Adafactor::Config>();
  classes.add<Muon::Config>();
  classes.add<ConstantSchedule::Config>();
  classes.add<WarmupCosine::Config>();
  classes.add<WarmupConstant>();
  classes.add<WarmupPolynomial>();
  classes.add<WarmupInverseSqrt>();
  classes.add<WarmupStableDecay>();
  classes.add<WarmupPiecewise>();
}

}  // namespace meshloom::trainer
