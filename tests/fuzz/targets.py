"""Every parser of what somebody else may have written, with what makes its inputs and its declared errors."""

from pydantic import ValidationError

from suite.bundle.files import DamagedBundle
from suite.launch.cluster.scheduler import Unanswered
from suite.launch.docker.copying import UnsafeCopy
from suite.spec.base import UsageError
from tests.fuzz import bundles, clusters, manifests, mutate, tables, words
from tests.fuzz.archives import make_copied, make_identity, make_packed, read_copied, read_identity, read_packed
from tests.fuzz.run import Target

BUNDLE = (DamagedBundle, UsageError)
TARGETS = {
    target.name: target
    for target in (
        Target("manifest", manifests.every_manifest, manifests.read_manifest, (DamagedBundle,)),
        Target("shape", manifests.yaml_or_bytes, manifests.read_shape, (UsageError,)),
        Target("config", mutate.json_document(lambda: manifests.CONFIGS), manifests.read_config, (UsageError,)),
        Target(
            "workload",
            mutate.json_document(lambda: manifests.WORKLOADS, manifests.no_files),
            manifests.read_workload,
            (ValidationError, UsageError, DamagedBundle),
        ),
        Target("rank-events", bundles.make_events("rank-0.jsonl"), bundles.read_rank_events, BUNDLE),
        Target("driver-events", bundles.make_events("driver.jsonl"), bundles.read_driver_events, BUNDLE),
        Target("record", bundles.every_record, bundles.read_record, BUNDLE),
        Target("environment", mutate.json_document(lambda: [bundles.ENVIRONMENT]), bundles.read_environment, BUNDLE),
        Target("submission", clusters.every_submission, clusters.read_a_submission, (UsageError,)),
        Target("claims", tables.make_claims, tables.read_claims, (UsageError,)),
        Target("durations", words.make_text(words.DURATIONS), words.read_duration, (UsageError,)),
        Target("sizes", words.make_text(words.SIZES), words.read_size, (UsageError,)),
        Target("words", words.make_text(words.WORDS), words.read_words, (UsageError,)),
        Target("slurm", clusters.make_slurm, clusters.read_slurm, (UsageError,)),
        Target("kubernetes", clusters.make_kubernetes, clusters.read_kubernetes, BUNDLE),
        Target("stream", clusters.make_stream, clusters.read_stream, ()),
        Target("pod-log", clusters.make_pod_log, clusters.read_pod_log, (Unanswered,)),
        Target("site", words.make_site, words.read_a_site, (UsageError,)),
        Target("tags", words.make_tags, words.read_tags, (UsageError,)),
        Target("image-stack", words.make_stack, words.read_a_stack, (UsageError,)),
        Target("archive", make_copied, read_copied, (UnsafeCopy,)),
        Target("packed", make_packed, read_packed, (UsageError,)),
        Target("identity", make_identity, read_identity, (UsageError,)),
        Target("import", tables.make_import, tables.read_import, (UsageError,)),
    )
}
