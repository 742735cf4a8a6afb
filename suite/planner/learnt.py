"""How sure the planner is of a prediction: constants as normal logarithms with a covariance, before and after own runs.

Before any run of the user's a phase lies about its prediction as the published ones did that no fit had seen. The
user's runs narrow that (``suite.planner.calibrate``). The logarithm of a prediction is close to linear in those of the
constants, so its variance follows from slopes and covariance (the delta method: Casella and Berger, "Statistical
Inference", 2002, section 5.5.4).
"""

from collections.abc import Callable, Mapping
from math import exp, log, sqrt

import numpy as np

from suite.planner.hardware import Hardware
from suite.planner.parameters import Band, Learnt, Parameters, load_priors
from suite.planner.space import PHASE_OF
from suite.planner.work import Column

#: Of a normal distribution four fifths lie within so many deviations, and nine tenths within the next.
FOUR_FIFTHS, NINE_TENTHS = 1.2816, 1.6449
#: Constants that differ between sites and stacks, beside the device's matrix rate: what small and large runs, few and
#: many devices meet in different shares.
CONSTANTS = (
    *("attention", "memory_bandwidth", "residual_traffic", "layer_seconds"),
    *("tensor_exposed", "data_exposed", "gather_bandwidth", "stragglers"),
)
#: How far a site's own constants lie from the fitted ones, in spreads of what was thought before any row was seen.
DRIFT = 0.5
#: What constants do not explain of one configuration, relative: of a training step, and of a phase.
STEP_MISFIT, PHASE_MISFIT = 0.05, 0.12
#: Phases of a run, and the kind of published phase whose errors tell how sure one is of them.
KINDS = {phase: kind for kind, phase in PHASE_OF.items()}
_STEP, _LEAST_SPREAD = 1e-3, 0.05


def before(parameters: Parameters, hardware: Hardware) -> Learnt:
    """What is thought before any own run: phases by the errors of published ones whose stack no fit had seen, all of
    them together by those of training steps, constants by their priors."""
    constants, priors = (f"matrix_{hardware.architecture}", *CONSTANTS), load_priors().every
    spreads = [DRIFT * priors[name].spread for name in constants]
    spreads += [_spread(parameters.bands[kind].new) for kind in KINDS.values()]
    covariance = np.diag(np.square(spreads))
    own = len(constants)
    covariance[own:, own:] += _spread(parameters.bands["step"].new) ** 2
    return Learnt(
        names=(*(f"value {name}" for name in constants), *(f"phase {name}" for name in KINDS)),
        covariance=tuple(map(tuple, covariance.tolist())),
        noise=PHASE_MISFIT,
    )


def _spread(band: Band) -> float:
    """Standard deviation of a logarithm of which four fifths lie in the band, less the misfit of configurations."""
    whole = log(band.high / band.low) / (2 * FOUR_FIFTHS)
    return sqrt(max(whole**2 - PHASE_MISFIT**2, _LEAST_SPREAD**2))


def moved(parameters: Parameters, by: Mapping[str, float]) -> Parameters:
    """The parameters with logarithms of constants, by their names in a ``Learnt``, moved by so much."""
    values, phases = dict(parameters.values), dict(parameters.phases)
    for name, distance in by.items():
        kind, _, own = name.partition(" ")
        if kind == "phase":
            phases[own] = phases.get(own, 1.0) * exp(distance)
        else:
            values[own] *= exp(distance)
    return parameters.model_copy(update={"values": values, "phases": phases})


def deviation(parameters: Parameters, known: Learnt, seconds: Callable[[Parameters], Column]) -> Column:
    """Standard deviations of the logarithms of what ``seconds`` predicts, a configuration's own misfit in."""
    base = np.log(seconds(parameters))
    slopes = np.column_stack(
        [(np.log(seconds(moved(parameters, {name: _STEP}))) - base) / _STEP for name in known.names]
    )
    covariance = np.array(known.covariance)
    return np.sqrt(np.einsum("ij,jk,ik->i", slopes, covariance, slopes) + known.noise**2)
