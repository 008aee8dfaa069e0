// Counts how often a submission ran to its end: its last command.
#define BINDINGS(X) X(0, RW, uint, counts)
#define CONSTANTS(X) X(0, int, slot)
KERNEL_BEGIN
  STORE(counts, slot, LOAD(counts, slot) + 1u);
KERNEL_END
