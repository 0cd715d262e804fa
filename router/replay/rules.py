"""What decides: everything of a configuration, and of the tuning over it, that a decision reads."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from router.config.schema import Config
from router.control.document import ControlDocument
from router.decision import POLICIES, CanaryArm, Decision, Exploration, Inputs, Policy, Scenario, choose_arm, explore
from router.decision.exploration import OFF
from router.replay.recorded import Recorded


class GroupRules(NamedTuple):
    """One group's."""

    thresholds: Mapping[str, float]
    version: str
    canary: CanaryArm | None


class Rules(NamedTuple):
    """All that decides, besides the request and the state of the variants."""

    policy: Policy
    exploration: Exploration
    scenarios: Mapping[str, Scenario]
    groups: Mapping[str, GroupRules]
    others: GroupRules
    """For groups that the configuration does not name."""

    def decide(self, one: Recorded) -> Decision:
        """Return the decision on a recorded request, with its own chances drawn again the same."""
        group = self.groups.get(one.group, self.others)
        arm = choose_arm(one.draw, group.thresholds, group.version, group.canary)
        scenario = self.scenarios.get(one.scenario) or Scenario(one.scenario)
        inputs = Inputs(one.facts, one.risks, arm.thresholds, one.variants, scenario, arm.version)
        policy = self.policy if one.generates else POLICIES["full_precision"]
        decision = policy(inputs)._replace(arm=arm.name, thresholds=arm.thresholds)
        exploration = self.exploration if one.generates and one.may_explore else OFF
        return explore(decision, exploration, one.dice, one.facts.max_risk)


def rules_of(
    config: Config,
    recommended: Mapping[str, float],
    document: ControlDocument | None = None,
    own: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> Rules:
    """Return the rules that a proxy with this configuration would have.

    `recommended` are the classifier's thresholds, for precisions of which the configuration says nothing, and `own` those
    of groups with a classifier of their own. `document` adds tuned thresholds and canaries; its changes to the configuration must be in `config` already.
    """
    chosen = document or ControlDocument()
    names = {*config.groups, *chosen.groups, *own}
    scenarios = config.scenarios
    return Rules(
        policy=POLICIES[config.policy],
        exploration=Exploration(config.exploration.effective_share(config.tuning.mode), config.exploration.max_risk),
        scenarios={
            name: Scenario(name, _seconds(s.ttft_ms), _seconds(s.e2e_ms), s.gives_way, s.prefer, s.overload == "refuse")
            for name, s in (
                ("realtime", scenarios.realtime),
                ("batch", scenarios.batch),
                ("edge", scenarios.edge),
            )
        },
        groups={name: _group(name, config, own.get(name, recommended), chosen) for name in names},
        others=_group("", config, recommended, chosen),
    )


def _group(name: str, config: Config, recommended: Mapping[str, float], document: ControlDocument) -> GroupRules:
    settings, tuning = config.groups.get(name), document.groups.get(name)
    thresholds: dict[str, float] = dict(recommended)
    thresholds.update(config.thresholds.items())
    if settings is not None:
        thresholds.update(settings.thresholds.items())
    if tuning is not None:
        thresholds.update(tuning.thresholds.items())
    version = str(document.version) if document.version else config.policy_version
    canary = None
    if tuning is not None and tuning.canary is not None:
        tried = dict(thresholds)
        tried.update(tuning.canary.thresholds.items())
        canary = CanaryArm(tuning.canary.share, tried, f"{version}-canary")
    return GroupRules(thresholds, version, canary)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
