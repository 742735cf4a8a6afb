"""Results as a data frame in three lines, and what to do with it, from the root of a checkout."""

from suite import api

runs = api.load("docs/results/cpu")
frame = runs.to_pandas()

# more of it: medians by configuration, the phases of each backend, and one backend against another
by = ["algorithm", "size", "ranks", "backend"]
print(
    frame.groupby(by)["samples_per_second"].agg(["median", "count"]).rename_axis(by).add_prefix("samples_per_second ")
)

phases = runs.where(size="1M", ranks=2, algorithm="ppo").to_pandas("phases")
print(phases.pivot_table(index="phase", columns="backend", values="seconds", aggfunc="mean", sort=False))

deepspeed, megatron = (
    runs.where(size="1M", ranks=2, algorithm="ppo", backend=name) for name in ("deepspeed", "megatron")
)
found = api.compare(deepspeed, megatron, with_suspect=True)
print(found)
for phase in found.phases:
    print(f"  {phase.name}: {phase.ratio:.3f} [{phase.low:.3f}, {phase.high:.3f}], {phase.verdict}")
