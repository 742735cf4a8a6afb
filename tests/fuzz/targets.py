"""Every parser of what somebody else may have written, with what makes its inputs and its declared errors."""

from functools import partial

from pydantic import ValidationError

from suite.bundle.files import DamagedBundle
from suite.cli.options.options_file import read_site
from suite.images.inside import read_stack
from suite.launch.cluster.launcher import Unanswered
from suite.spec.base import UsageError
from suite.spec.foreign import Unreadable
from suite.spec.shape_file import load_shape
from tests.fuzz import bundles, clusters, manifests, tables, words
from tests.fuzz.archives import make_copied, make_identity, make_packed, read_copied, read_identity, read_packed
from tests.fuzz.manifests import CONFIGS, hashed_again
from tests.fuzz.material import from_file
from tests.fuzz.mutate import json_document, line_document
from tests.fuzz.run import Target

BUNDLE = (DamagedBundle, UsageError)
TARGETS = {
    target.name: target
    for target in (
        Target("manifest", json_document(manifests.manifests, hashed_again), manifests.read_manifest, (DamagedBundle,)),
        Target("shape", manifests.yaml_or_bytes, from_file("shape.yaml", load_shape)),
        Target("config", json_document(lambda: CONFIGS), from_file("config.json", load_shape)),
        Target(
            "workload",
            json_document(lambda: manifests.WORKLOADS, manifests.no_files),
            manifests.read_workload,
            (ValidationError, UsageError, DamagedBundle),
        ),
        Target("rank-events", bundles.make_events("rank-0.jsonl"), bundles.read_events("rank-0.jsonl"), BUNDLE),
        Target("driver-events", bundles.make_events("driver.jsonl"), bundles.read_events("driver.jsonl"), BUNDLE),
        Target("record", json_document(bundles.records), bundles.read_record, BUNDLE),
        Target("environment", json_document(lambda: [bundles.ENVIRONMENT]), bundles.read_environment, BUNDLE),
        Target("submission", json_document(clusters.submissions, clusters.hashed), clusters.read_a_submission),
        Target("claims", tables.make_claims, tables.read_claims),
        Target("durations", words.make_text(words.DURATIONS), words.read_duration),
        Target("sizes", words.make_text(words.SIZES), words.read_size),
        Target("words", words.make_text(words.WORDS), words.read_words),
        Target("slurm", clusters.make_slurm, clusters.read_slurm),
        Target("kubernetes", clusters.make_kubernetes, clusters.read_kubernetes, BUNDLE),
        Target("stream", line_document(clusters.OUTPUT), clusters.read_stream, ()),
        Target("pod-log", clusters.make_pod_log, clusters.read_pod_log, (Unanswered,)),
        Target("site", line_document(words.SITE), from_file("site.yaml", partial(read_site, launcher="slurm"))),
        Target("tags", json_document(lambda: [words.TAGS]), words.read_tags),
        Target("image-stack", json_document(lambda: [words.STACK]), from_file("image.sqsh.stack.json", read_stack)),
        Target("archive", make_copied, read_copied, (Unreadable,)),
        Target("packed", make_packed, read_packed),
        Target("identity", make_identity, read_identity),
        Target("import", line_document(*tables.LOGS), tables.read_import, (DamagedBundle,)),
    )
}
