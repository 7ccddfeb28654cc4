"""``python -m tests.bench.trace``: what tracing costs at a fixed rate, side by side with tracing off.

CPU share of the daemon (and of the compaction processes that it starts), latency, and how late the event loop is.
"""

import argparse
import statistics

from tests.bench.run import Figures, measure

SUBJECTS = ("streamer", "traced")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=20_000, help="messages/s")
    parser.add_argument("--seconds", type=float, default=10, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=256, help="payload bytes")
    parser.add_argument("--only", choices=("up", "down"), help="one direction")
    a = parser.parse_args()
    print(f"{a.rounds} rounds of {a.seconds:.0f} s at {a.rate:.0f} messages/s of {a.size} bytes, in turn")
    print(
        f"{'direction':<15}{'subject':<10}{'CPU share %':>12}{'CPU µs/msg':>12}{'p50 ms':>9}{'p99 ms':>9}{'lag p99 ms':>12}"
    )
    for direction, name in (("down", "MQTT → Zenoh"), ("up", "Zenoh → MQTT")):
        if a.only not in (None, direction):
            continue
        runs: dict[str, list[Figures]] = {subject: [] for subject in SUBJECTS}
        for _ in range(a.rounds):
            for subject, results in runs.items():
                results.append(measure(subject, direction, int(a.rate * a.seconds), a.rate, a.size, has_journal=True))
        for subject, results in runs.items():
            cpu_us, p50_ms, p99_ms, lag_ms = (
                statistics.median(values)
                for values in zip(*((r.cpu_us, r.p50_ms, r.p99_ms, r.lag_p99_ms) for r in results), strict=True)
            )
            print(
                f"{name:<15}{subject:<10}{cpu_us * a.rate / 1e4:>12.1f}{cpu_us:>12.2f}{p50_ms:>9.2f}{p99_ms:>9.2f}"
                f"{lag_ms:>12.2f}"
            )
        off, on = (runs[subject] for subject in SUBJECTS)
        ratios = [with_.cpu_us / without.cpu_us for without, with_ in zip(off, on, strict=True)]
        print(
            f"{name:<15}ratio: CPU {statistics.median(ratios):.3f} times ({min(ratios):.3f}–{max(ratios):.3f})", flush=True
        )


if __name__ == "__main__":
    main()
