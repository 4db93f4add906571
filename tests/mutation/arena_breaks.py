"""Lines of the arena that are broken on purpose: (file, before, after) each."""

from __future__ import annotations

_ROOM = "ludus/arena"
_PPO, _SPG, _REINFORCE = (f"{_ROOM}/objectives/{name}.py" for name in ("ppo", "spg", "reinforce"))
_PROTOCOL, _STATISTICS, _RL = (
    f"{_ROOM}/{name}.py" for name in ("protocol", "statistics", "rl_trainer")
)
_ENVIRONMENT, _DISTRIBUTION = (
    f"{_ROOM}/playing/{name}.py" for name in ("environment", "distribution")
)
_COMBINED, _PARTS = f"{_ROOM}/agents/combined.py", f"{_ROOM}/agents/kinds/parts.py"
_TRAINER, _LEARNED = f"{_ROOM}/trainer.py", f"{_ROOM}/learning/update.py"
_PRETRAINING = f"{_ROOM}/initialisation/pretraining.py"
_SLOT, _ENVS = (f"{_ROOM}/scenarios/pettingzoo/{name}.py" for name in ("slot", "environment"))

_ESTIMATE = f"{_ROOM}/learning/estimate.py"
_GRAPHS = f"{_ROOM}/scenarios/graph_isomorphism"

ARENA = [
    (_ESTIMATE, "following_BTA1[:, :-1] = value_BTA1[:, 1:]", "pass"),
    (_ESTIMATE, "with set_skip_existing(True):", "with set_skip_existing(False):"),
    (_ESTIMATE, "critic is None or not ends_in_time or", "critic is None or"),
    (_LEARNED, 'compiles = vars(type(self.learned.objective)).get("compiles", False)',
     'compiles = getattr(self.learned.objective, "compiles", False)'),
    (_LEARNED, "compiles and is_plain([self.learned.agents])", "compiles"),
    (_LEARNED, "super().is_worth_compiling(length)", "True"),
    (_PPO, "advantage_NA1 = standardised(advantage_NA1, has_turn(td))",
     'advantage_NA1 = standardised(advantage_NA1, td["mask"][:, None].expand_as(has_turn(td)))'),
    (_PPO, "self.critic_coeff * error", "error"),
    (_PPO, "before = value_NA1 if self.value_clip is None else td[VALUE]", "before = value_NA1"),
    (_PPO, "beta = self.beta.clone()", "beta = self.beta"),
    (_PPO, "beta.clamp(*self.reach)", "beta"),
    (_PPO, " * (turns.numel() / turns.sum().clamp_min(1))", ""),
    (_REINFORCE, "later = torch.where(done_BTA1[:, step], 0.0, to_go)", "later = to_go"),
    (_REINFORCE, 'self.asks_values = params.weight.kind == "advantage"', "self.asks_values = True"),
    (_SPG, "gain_ET = gain_ET + (led_here_ET - 1.0) * (gain_ET - gain_ET.detach())", "pass"),
    (_SPG, "if one.requires_grad and one not in fixed", "if one.requires_grad"),
    (f"{_ROOM}/objectives/stackelberg.py", "shaping[name] = -rate * gradient(shaped, own)",
     "shaping[name] = rate * gradient(shaped, own)"),
    (f"{_ROOM}/objectives/objective.py",
     "counts = has_turn(td) if name not in VALUE_TERMS else is_there(td)", "counts = has_turn(td)"),
    (_PROTOCOL, "return Outcome(rewards_BA * going_B[:, None], ends_B, verdict_B)",
     "return Outcome(rewards_BA, ends_B, verdict_B)"),
    (_PROTOCOL, "is_late_enough = round_index >= self.min_message_rounds - 1",
     "is_late_enough = round_index >= self.min_message_rounds"),
    (_PROTOCOL, "gains[prover] = own if rules.shared_reward else argued", "gains[prover] = argued"),
    (_PROTOCOL, "            return y_B\n", "            return decision_B\n"),
    (f"{_ROOM}/protocols/zero_knowledge.py", "seen[SIMULATOR] = (*asked, *map(_simulated, asked))",
     "seen[SIMULATOR] = (*asked, *map(_answers, asked), *map(_simulated, asked))"),
    (f"{_ROOM}/protocols/_table.py", "num_variants = 2", "num_variants_ = 2"),
    (_COMBINED, "if not self.sees_all[index]:", "if False:"),
    (_ENVIRONMENT, "decision_BA = torch.zeros_like(decision_BA)", "pass"),
    (_ENVIRONMENT, "message_BAC = self.handler.speakers(at, seed_B) & ~over_B[:, None, None]",
     "message_BAC = self.handler.speakers(at, seed_B)"),
    (_DISTRIBUTION, "return decided * one.decision_mask + (said * one.message_mask).sum(-1)",
     "return decided + (said * one.message_mask).sum(-1)"),
    (_STATISTICS, "varies_A = all_A > 1e-10 * (1.0 + mean_A**2)", "varies_A = all_A > 0"),
    (_STATISTICS, '"precision": mean_of(y_B == 1, judged_B & accepted_B)',
     '"precision": mean_of(y_B == 1, judged_B)'),
    (_PARTS, "own = self.body if self.has_own_body else None", "own = self.body"),
    (_LEARNED, "self.estimator = estimator", "pass"),
    (_LEARNED, "loss, norm, metrics = self.learner.step(loss_fn, learning_rate, in_train_mode=False)",
     "loss, norm, metrics = self.learner.step(loss_fn, learning_rate)"),
    (_RL, 'with self._as_tested(), forked(derive(self.config.seed, "arena/evaluated")):',
     'with forked(derive(self.config.seed, "arena/evaluated")):'),
    (_RL, "is_interrupted=lambda: self.run.interrupted,", ""),
    (_ESTIMATE, "not ends_in_time or not is_plain_look(critic)", "not ends_in_time"),
    (_LEARNED, 'self.plain_state = PlainState(self.learned, known=("torchrl", "tensordict"))',
     "self.plain_state = PlainState(self.learned.agents)"),
    (_TRAINER, "with restored(self.agents), ExitStack() as stack:", "with ExitStack() as stack:"),
    (_TRAINER, "check_given(self.given_instance, self.config)", "pass"),
    (f"{_ROOM}/preflight.py", "gae.deactivate_vmap = True", "pass"),
    (f"{_ROOM}/build.py", 'with forked(derive(params.seed, f"arena/agent/{name}")):',
     'with forked(derive(params.seed, "arena/agent")):'),
    (_PRETRAINING, "return [] if self._update is None else self._update.inexact_because()", "return []"),
    (_DISTRIBUTION, "waits = torch.empty_like(logits).exponential_(generator=generator)",
     "waits = torch.empty_like(logits[:, :1]).exponential_(generator=generator).expand_as(logits)"),
    (_ENVIRONMENT, 'derive(self._seed, f"arena/{self._name}/episode", iteration)',
     'derive(self._seed, f"arena/{self._name}/episode", 0)'),
    (_ENVIRONMENT, 'derive(self._seed, f"arena/{self._name}/episode", iteration)',
     'derive(self._seed, "arena/episode", iteration)'),
    (_ENVIRONMENT, 'source = generator(self._seed, f"arena/{self._name}/order", number)',
     'source = generator(self._seed, f"arena/{self._name}/order", 0)'),
    (_ENVIRONMENT, 'source = generator(self._seed, f"arena/{self._name}/order", number)',
     'source = generator(self._seed, "arena/order", number)'),
    (_RL, 'seed = derive(self.config.seed, "arena/actions", iteration)',
     'seed = derive(self.config.seed, "arena/actions", 0)'),
    (f"{_ROOM}/evaluation.py", 'seed = derive(self.config.seed, f"arena/{name}/actions", index)',
     'seed = derive(self.config.seed, "arena/actions", index)'),
    (_RL, "number = iteration * config.rl.num_epochs + epoch", "number = iteration"),
    (_ENVS, 'name = f"arena/{self._name}/env {slot.index}/episode {episode}"',
     'name = f"arena/env {slot.index}/episode {episode}"'),
    (_ENVS, "seed = derive(self._seed, name, iteration) % 2**31",
     "seed = derive(self._seed, name, 0) % 2**31"),
    (f"{_GRAPHS}/__init__.py", "% 4 in quarters", "% 4 in range(4)"),
    (f"{_GRAPHS}/pairs.py", "sorted((one.tobytes(), other.tobytes()))",
     "(one.tobytes(), other.tobytes())"),
    (f"{_ROOM}/objectives/stackelberg.py", "losses[name], None, [name], level, is_graph=level > 0",
     "losses[name], None, [name], len(groups) if level else 0, is_graph=level > 0"),
    (_SPG, "weight_ET = weight_ET * self._discounts(weight_ET)", "pass"),
    (f"{_ROOM}/build.py", 'check_trainer_type(find("arena_agent", section.kind), section.kind, trainer_type)',
     "pass"),
    (f"{_ROOM}/protocols/_table.py", "[one, other] if params.prover0_first else [other, one]",
     "[one, other]"),
    (_SLOT, "self.num_steps >= self.limit", "False"),
    (_ENVS, "there=acts_BA,", "there=None,"),
]  # fmt: skip
