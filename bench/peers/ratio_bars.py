"""What the checks that hold speeds to others print: medians of rates, and a line per bar."""
import statistics


def print_rate(name, rates):
    print(f"      {name} {statistics.median(rates):8.1f} tokens/s ({min(rates):.1f} to {max(rates):.1f})")


class RatioBars:
    def __init__(self):
        self.short = 0  # bars that fall short

    def bar(self, name, values, least):
        median = statistics.median(values)
        good = median >= least
        self.short += not good
        print(f"{'ok   ' if good else 'SHORT'} {name}: {median:.2f} ({min(values):.2f} to {max(values):.2f}), at least {least} wanted")
