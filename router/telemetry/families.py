"""Every metric that Bitgear exposes, declared once. Labels come from the configuration and from fixed lists alone.

`PLACE` is where a request was served: its group, variant, replica (its number) and scenario; `none` where it got nowhere.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from router.telemetry.rates import Rate

PLACE = ("group", "variant", "replica", "scenario")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
ITL_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)
RISKS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
SPEEDS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
RATIOS = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0, 8.0)

_RATES = {
    "requests": "Requests ended per second",
    "prompt_tokens": "Prompt tokens of answered requests per second",
    "completion_tokens": "Generated tokens per second",
    "targeted_requests": "Requests per second that could meet their scenario's targets, or miss them",
    "goodput_requests": "Requests per second that met their scenario's targets (goodput)",
    "goodput_tokens": "Generated tokens per second of requests that met their scenario's targets (goodput)",
}


class Families:
    """The metrics of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        place = PLACE
        self.requests = self._counter(
            "requests", "Requests ended.", "group", "variant", "endpoint", "scenario", "status"
        )
        self.errors = self._counter("errors", "Requests that failed, by kind.", "group", "variant", "scenario", "kind")
        self.decisions = self._counter("decisions", "Decisions.", "group", "variant", "precision", "reason")
        self.failed_attempts = self._counter(
            "failed_attempts",
            "Attempts that a replica failed or refused; another may have taken over.",
            "group",
            "variant",
            "replica",
        )
        self.retries = self._counter("retries", "Attempts after the first, by who answered in the end.", *place)
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens, as counted by the variants.", *place)
        self.completion_tokens = self._counter(
            "completion_tokens", "Generated tokens, as counted by the variants.", *place
        )
        self.targeted = self._counter(
            "targeted_requests", "Requests that could meet their scenario's targets, or miss them.", *place
        )
        self.good = self._counter("goodput_requests", "Requests that met their scenario's targets.", *place)
        self.good_tokens = self._counter(
            "goodput_tokens", "Generated tokens of requests that met their scenario's targets.", *place
        )
        self.gpu_seconds = self._counter(
            "gpu_seconds", "GPU-seconds of answers: their share of a replica's time, times its GPUs.", *place
        )
        self.cost = self._counter("cost", "Cost of answers, in the currency of cost.currency.", *place)
        self.full_gpu_seconds = self._counter(
            "full_precision_gpu_seconds",
            "GPU-seconds that the same answers would have taken at full precision.",
            *place,
        )
        self.full_cost = self._counter(
            "full_precision_cost", "What the same answers would have cost at full precision.", *place
        )
        self.ttft = self._histogram("time_to_first_token_seconds", "Request's arrival to first token.", SECONDS, *place)
        self.itl = self._histogram(
            "inter_token_latency_seconds", "Mean time between a stream's tokens.", ITL_SECONDS, *place
        )
        self.e2e = self._histogram("e2e_request_latency_seconds", "Request's arrival to its end.", SECONDS, *place)
        self.hold = self._histogram(
            "hold_time_seconds",
            "Request's arrival until it was sent to the replica that answered: Bitgear's own work, waiting for an "
            "identical request, failed attempts.",
            SECONDS,
            *place,
        )
        self.queue = self._histogram(
            "queue_time_seconds",
            "Wait in the replica's queue: time to its first token less the prefill that its other answers predict; "
            "0 where it had no queue.",
            SECONDS,
            *place,
        )
        self.completion_speed = self._histogram(
            "request_completion_tokens_per_second", "One answer's tokens over its time at the replica.", SPEEDS, *place
        )
        self.prompt_speed = self._histogram(
            "request_prompt_tokens_per_second", "One prompt's tokens over the time to its first token.", SPEEDS, *place
        )
        self.ttft_ratio = self._histogram(
            "ttft_prediction_ratio", "Measured over predicted time to first token.", RATIOS, *place
        )
        self.e2e_ratio = self._histogram(
            "e2e_prediction_ratio",
            "Measured over predicted time of the whole answer (its length is predicted too).",
            RATIOS,
            *place,
        )
        self.risk = self._histogram("risk", "Estimated risk.", RISKS, "group", "precision")
        self.taken_risk = self._histogram(
            "taken_risk", "Estimated risk of the precision that was chosen.", RISKS, "group", "variant"
        )
        self.events = self._counter(
            "events", "Events by what became of them: written, dropped, or left out at random over a rate.", "result"
        )
        self.spans = self._counter(
            "spans", "Spans that the collector of traces took (sent) or did not (failed).", "result"
        )
        self.cache_requests = self._counter(
            "cache_requests", "Requests by what the cache did for them.", "group", "result"
        )
        self.cache_tokens = self._counter("cache_tokens_saved", "Tokens of answers from the cache.", "group", "kind")
        self.cache_semantic = self._counter(
            "cache_semantic",
            "Answers to another wording: given (hit), or checked against a fresh one.",
            "group",
            "result",
        )
        self.cache_bytes = self._counter("cache_bytes", "Bytes of entries read and written.", "direction")
        self.cache_errors = self._counter("cache_errors", "What failed in the cache.", "kind")
        self.cache_up = self._gauge("cache_up", "1 while Redis answers.", "livemin")
        replica = ("group", "variant", "replica")
        self.replica_ready = self._gauge("replica_ready", "1 when the replica serves.", "livemin", *replica)
        self.replica_inflight = self._gauge(
            "replica_inflight", "Requests in flight to the replica.", "livesum", *replica
        )
        # What a server says of itself is the same for every worker: the latest reading counts.
        latest = "livemostrecent"
        self.replica_running = self._gauge(
            "replica_running", "Requests running, as the replica says.", latest, *replica
        )
        self.replica_waiting = self._gauge(
            "replica_waiting", "Requests waiting, as the replica says.", latest, *replica
        )
        self.replica_kv = self._gauge(
            "replica_kv_cache_usage", "Share of the replica's KV cache in use.", latest, *replica
        )
        self.replica_queue = self._gauge(
            "replica_queue_time_seconds",
            "Mean wait in the replica's queue, as it says itself, of the requests since the reading before.",
            latest,
            *replica,
        )
        self.threshold = self._gauge(
            "threshold", "Highest risk that the precision takes.", latest, "group", "precision"
        )
        self.drift_bins = self._gauge(
            "drift_bin_requests", "Requests of the drift window by feature and bin.", "livesum", "feature", "bin"
        )
        self.drift_requests = self._gauge(
            "drift_requests", "Requests that were compared with what the classifier was made for.", "livesum"
        )
        self.drift_index = self._gauge(
            "drift_index",
            "Population stability index of traffic against what the classifier was made for; above 0.25 is a shift.",
            latest,
            "feature",
        )
        self.calibration_error = self._gauge(
            "calibration_error",
            "Expected calibration error of the risks against shadow pairs, in [0, 1].",
            latest,
            "group",
            "precision",
        )
        self.calibration_bias = self._gauge(
            "calibration_bias",
            "Mean risk less the share of shadow pairs that came out worse; below 0, risks are too low.",
            latest,
            "group",
            "precision",
        )
        self.rates = {
            name: self._gauge(
                f"window_{name}_per_second", f"{words}, over a sliding window.", "livesum", *place, "window"
            )
            for name, words in _RATES.items()
        }
        assert tuple(self.rates) == Rate._fields

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"bitgear_{name}", words, labels, registry=self._registry)

    def _histogram(self, name: str, words: str, edges: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"bitgear_{name}", words, labels, buckets=edges, registry=self._registry)

    def _gauge(self, name: str, words: str, mode: str, *labels: str) -> Gauge:
        return Gauge(f"bitgear_{name}", words, labels, multiprocess_mode=mode, registry=self._registry)  # type: ignore[arg-type]


__all__ = ["PLACE", "Families"]
