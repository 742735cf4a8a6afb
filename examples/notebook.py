# %% [markdown]
# # Results in a notebook
#
# Each cell runs as it stands in VS Code, Spyder or PyCharm, which know `# %%`; `jupytext --to ipynb notebook.py` makes
# a notebook of the file for Jupyter. It needs `pip install 'rlhf-suite[data]'`, and runs from the root of a checkout,
# on the results in `docs/results/cpu`.

# %%
from suite import api

runs = api.load("docs/results/cpu")
frame = runs.to_pandas()
frame[["run", "backend", "size", "ranks", "status", "validity", "samples_per_second"]].head()

# %% [markdown]
# What was left out when these were read, or must be known beside the figures, is told in words.

# %%
for line in runs.warnings:
    print(line)

# %% [markdown]
# Medians by configuration. A row is a run, so the spread between repeats is in the frame, and not only within one.

# %%
by = ["algorithm", "size", "ranks", "backend"]
rates = frame[frame["status"] == "ok"].groupby(by)["samples_per_second"]
table = rates.agg(["median", "min", "max", "count"])
table

# %% [markdown]
# Where do two backends differ? Seconds of each phase, and the ratio with its interval as `suite report` has it.

# %%
pair = runs.where(size="1M", ranks=2, algorithm="ppo")
phases = pair.to_pandas("phases").pivot_table(
    index="phase", columns="backend", values="seconds", aggfunc="mean", sort=False
)
phases

# %%
sides = [pair.where(backend=name) for name in ("deepspeed", "megatron")]
found = api.compare(*sides, with_suspect=True)
print(found)
for phase in found.phases:
    print(f"  {phase.name}: {phase.ratio:.3f} [{phase.low:.3f}, {phase.high:.3f}], {phase.verdict}")

# %% [markdown]
# Iterations in order show whether a run was steady: the first ones are the warm-up, which no figure is made of.

# %%
iterations = pair.to_pandas("iterations")
drift = iterations.pivot_table(index="iteration", columns="backend", values="seconds", aggfunc="median")
drift

# %% [markdown]
# Other tools' logs (`suite import`) are a table of their own, and every row of it says that it was not measured here.

# %%
imported = runs.to_pandas("imported")
imported[["mark", "tool", "model", "devices", "tokens_per_second"]]
