"""Lines broken on purpose, and the tests that must notice: (folder, file, before, after) each."""

from __future__ import annotations

from pathlib import Path

TESTS: dict[str, list[str]] = {
    "ludus/losses": ["tests/losses/test_losses.py", "tests/losses/test_distributions.py"],
    "ludus/rl/agents": [
        "tests/rl/test_keys_act.py",
        "tests/rl/test_agents.py",
        "tests/rl/test_kl.py",
        "tests/rl/test_modes.py",
        "tests/rl/test_normalise.py",
        "tests/rl/test_odd_spaces.py",
        "tests/test_golden_traces.py",
    ],
    "ludus/data": ["tests/data", "tests/keys/test_off_policy.py", "tests/test_golden_traces.py"],
    "ludus/nn": [
        "tests/nn",
        "tests/rl/test_modes.py",
        "tests/rl/test_taped.py",
        "tests/supervised/test_update.py",
        "tests/test_golden_traces.py",
    ],
    "ludus/games": [
        "tests/games/rules",
        "tests/games/hironaka",
        "tests/games/players",
        "tests/games",
        "tests/keys/test_fused_ppo.py",
        "tests/keys/test_fused_dqn.py",
        "tests/test_golden_traces.py",
    ],
}
"""Where the tests of each folder are, the nearest first."""

_EXECUTION, _DEVICE_PPO = "ludus/games/dqn/execution.py", "ludus/games/ppo"
_RULES, _PLAYERS, _MATHS = (f"ludus/games/{name}" for name in ("rules", "players", "hironaka"))
_FUSED_DQN = "ludus/games/dqn"
_ADVANTAGE, _PPO = "ludus/losses/advantage.py", "ludus/losses/ppo.py"
_DQN, _IQN, _SAC = (f"ludus/rl/agents/{name}.py" for name in ("dqn", "iqn", "sac"))
_PPO_AGENT = "ludus/rl/agents/ppo.py"
_BY_VALUES, _ESTIMATE = "ludus/rl/acting/by_values.py", "ludus/rl/rollouts/estimate.py"
_REPLAY, _PER, _TREE = (f"ludus/data/replay/{n}.py" for n in ("ring", "prioritised", "sum_tree"))
_DEVICE_RING = "ludus/data/replay/device_ring.py"
_ROLLOUT, _BATCHES = "ludus/data/replay/rollout.py", "ludus/data/batches/memory.py"
_STEP, _TARGET, _OPTIMIZER, _SCHEDULES = (
    f"ludus/nn/{n}.py" for n in ("step", "target", "optimizer", "schedules")
)
_TAPE, _MODEL, _FLAT = (f"ludus/nn/{name}.py" for name in ("engines/tape", "model", "flat"))

_LOSSES = [
    # A truncated step is treated as one that terminated, and the other way round.
    (_ADVANTAGE, "going_TB = (~terminated_TB)", "going_TB = (~ends_TB)"),
    (_ADVANTAGE, "keep_TB = gamma * lam * (~ends_TB)", "keep_TB = gamma * lam * (~terminated_TB)"),
    (_ADVANTAGE, "keep_TB = gamma * lam *", "keep_TB = lam *"),
    (_PPO, "-torch.minimum(ratios_B * advantages_B", "-torch.maximum(ratios_B * advantages_B"),
    (_PPO, "bounds: Any = (1 - clip, 1 + clip)", "bounds: Any = (0.0, 1 + clip)"),
    (_PPO, "- entropy_weight * entropies_B.mean()", "+ entropy_weight * entropies_B.mean()"),
    (_PPO, "near_B = old_values_B + (values_B - old_values_B).clamp(-clip, clip)",
     "near_B = values_B"),
    (_PPO, "(log_ratios_B.exp() - 1 - log_ratios_B).mean()", "(-log_ratios_B).mean()"),
    ("ludus/losses/dqn.py", "best_B1 = choosing_q_BA.argmax", "best_B1 = next_q_BA.argmax"),
    ("ludus/losses/dqn.py", "delta=huber)", "delta=1.0)"),
    ("ludus/losses/dqn.py", "masked_fill(~next_masks_BA", "masked_fill(next_masks_BA"),
    ("ludus/losses/iqn.py", "(errors_BNM.detach() < 0)", "(errors_BNM.detach() > 0)"),
    ("ludus/losses/sac.py", "soft_B = torch.minimum(next_q1_B, next_q2_B)",
     "soft_B = torch.maximum(next_q1_B, next_q2_B)"),
    ("ludus/losses/sac.py", "(log_probs_B.detach() + target_entropy)",
     "(log_probs_B.detach() - target_entropy)"),
    ("ludus/losses/sac.py", "squash_BD = 2 * (math.log(2)", "squash_BD = 2 * (math.log(3)"),
]  # fmt: skip

_RL_AGENTS = [
    (_DQN, "choosing_BA = self.learner(next_obs).float() if self.config.double else next_q_BA",
     "choosing_BA = next_q_BA"),
    (_DQN, "loss = td_loss(errors_B, weights, huber=self.config.huber)",
     "loss = td_loss(errors_B, None, huber=self.config.huber)"),
    (_DQN, "huber=self.config.huber", "huber=1.0"),
    (_BY_VALUES, "is_random_N = generator.random(count) < rate",
     "is_random_N = generator.random(count) < 0.5"),
    (_BY_VALUES, "rate = self.rate(num_env_steps)", "rate = self.rate(0)"),
    (_IQN, "choosing = self.learner if self.config.double else self.target",
     "choosing = self.target"),
    (_IQN, "        self._scale_F = None\n        return None if batch.weights is None",
     "        return None if batch.weights is None"),
    (_SAC, "if self.config.temperature.learned:", "if False:"),
    (_SAC, "self._target_entropy = -float(self._width) if aimed is None else aimed",
     "self._target_entropy = -float(self._width)"),
    (_SAC, "self._draw(self.actor(next_obs), noise[0])", "self._draw(self.actor(obs), noise[0])"),
    (_PPO_AGENT, "if config.normalise_advantage:", "if False:"),
    (_PPO_AGENT, "value_loss(values.float(), old_values, returns, config.value_clip)",
     "value_loss(values.float(), old_values, returns, None)"),
    (_PPO_AGENT, "entropy_weight=config.entropy_coef", "entropy_weight=0.0"),
    (_ESTIMATE, "rollout.terminated.to(self._device), ends_TN.to(self._device),",
     "ends_TN.to(self._device), ends_TN.to(self._device),"),
    (_ESTIMATE, "gamma=self._config.gamma, lam=self._config.gae_lambda",
     "gamma=self._config.gamma, lam=1.0"),
]  # fmt: skip

_DATA = [
    (_REPLAY, "np.multiply(out.uniform, size,", "np.multiply(out.uniform, size // 2 + 1,"),
    (_REPLAY, "self._discounts[start:end] = discounts_N", "self._discounts[start:end] = 1.0"),
    (_REPLAY, "self._at = 0 if self._is_staged else total % self.capacity", "self._at = 0"),
    (_PER, "weights = torch.from_numpy(((least / priorities) ** beta)",
     "weights = torch.from_numpy(((least / priorities) ** self.config.beta)"),
    (_PER, "priorities = (errors + self.config.eps) ** self.config.alpha",
     "priorities = errors + self.config.eps"),
    (_PER, "self._largest = max(self._largest,", "self._largest = max(1.0,"),
    (_PER, 'least = tree.minimum if self.config.normalise == "all" else priorities.min()',
     "least = priorities.min()"),
    (_TREE, "np.where(values > 0, values, np.inf)", "values"),
    (_TREE, 'running.searchsorted(left, "right")', 'running.searchsorted(left, "left")'),
    (_ROLLOUT, "views[4][step] = truncated_N", "views[3][step] |= truncated_N"),
    (_ROLLOUT, "self._generator.permutation(len(self._rows))", "np.arange(len(self._rows))"),
    (_ROLLOUT, "self._order, self._position = order.clone(), position", "self._order = order.clone()"),
    (_DEVICE_RING, ".remainder_(self.size.clamp(min=1))", ".remainder_(self.capacity)"),
    (_DEVICE_RING, "self.generator.set_state(generator.get_state())", "pass"),
    (_BATCHES, 'generator=generator(self._seed, "order", epoch)',
     'generator=generator(self._seed, "order", 0)'),
]  # fmt: skip

_NN = [
    (_TARGET, "own.lerp_(vector, share)", "own.copy_(vector)"),
    (_STEP, "scale = (norm / limit).clamp_min_(1.0)", "scale = norm / limit"),
    (_STEP, "found_inf = torch.ne(norm * 0, 0, out=self._found_inf)",
     "found_inf = torch.zeros_like(self._found_inf)"),
    (_STEP, "            gradient.zero_()\n        return norm", "            pass\n        return norm"),
    (_OPTIMIZER, 'move = torch._fused_adam_ if config.kind == "adam" else torch._fused_adamw_',
     "move = torch._fused_adam_"),
    (_OPTIMIZER, "dampening=0.0, nesterov=config.nesterov", "dampening=0.0, nesterov=False"),
    (_OPTIMIZER, "                self.num_steps -= found_inf", "                pass"),
    (_STEP, "square = square.masked_fill(part.is_frozen, 0.0)", "pass"),
    (_FLAT, "part.is_frozen.fill_(is_frozen)", "pass"),
    (_OPTIMIZER, "if self.rate == 1.0 else learning_rate * self.rate", "if self.rate else 0.0"),
    (_SCHEDULES, "return float(initial * (step + 1) / config.warmup_steps)", "return initial"),
    (_SCHEDULES, "step -= config.warmup_steps", "step -= 0"),
    (_SCHEDULES, 'share = 1 - done if config.kind == "linear"', 'share = 1 if config.kind == "linear"'),
    (_FLAT, "states.like(named, name, piece, finite=finite)", "pass"),
    (_MODEL, "module.training = mode", "pass"),
    (_TAPE, "own.copy_(value)  # type: ignore[arg-type]", "pass"),
]  # fmt: skip

_GAMES = [
    (f"{_RULES}/connect_four.py", "_HEIGHT = 7", "_HEIGHT = 6"),
    (f"{_RULES}/tic_tac_toe.py", "0o421, 0o124", "0o421, 0o421"),
    (f"{_RULES}/pendulum.py", "spin = minimum(maximum(spin, -MAX_SPIN), MAX_SPIN)", "spin = spin"),
    (f"{_RULES}/_stones.py", "cells_B2C if role == \"first\" else cells_B2C.flip(1)", "cells_B2C"),
    (f"{_RULES}/_stones.py", "won_B | (taken_B | stone_B == full)", "won_B"),
    (f"{_MATHS}/vertices.py", "(least_B / 2).clamp(min=_ROUNDING)", "1e-9"),
    (f"{_MATHS}/vertices.py", "(lower_BN > error) | ", ""),
    (f"{_MATHS}/vertices.py", "_ROUNDS = 4", "_ROUNDS = 1"),
    (f"{_MATHS}/exact.py", "return divisor > offset", "return divisor >= offset"),
    (f"{_MATHS}/exact.py", "if mine > least", "if mine < least"),
    (f"{_MATHS}/polyhedra.py", "is_vertex(rows[place], others)", "True"),
    (f"{_MATHS}/polyhedra.py", "wrong_BN = ~finite_BN | ", "wrong_BN = "),
    (f"{_PLAYERS}/zeillinger.py", "is_highest_BPD.sum(-1) + is_lowest_BPD.sum(-1)",
     "is_highest_BPD.sum(-1)"),
    (f"{_PLAYERS}/spivakovsky.py", "(enough_BG & is_new_BG)", "enough_BG"),
    (f"{_PLAYERS}/morin.py", "masked_fill(is_left_BD, 0.0)", "masked_fill(is_left_BD, 9.0)"),
    ("ludus/games/choose.py", "places_BA > wanted_B", "places_BA >= wanted_B"),
    ("ludus/games/choose.py", "draws_B2[:, 0] < rate", "draws_B2[:, 0] < 0.5 * rate"),
    ("ludus/games/choose.py", "values_BA = values_BA.masked_fill(~legal_BA, -torch.inf)", "pass"),
    ("ludus/games/roll_out.py", "one_hot(actions_B.long(), count).float()",
     "0 * one_hot(actions_B.long(), count).float()"),
    ("ludus/games/roll_out.py", "isinstance(player, ValuesMoves) and not is_checked",
     "isinstance(player, ValuesMoves)"),
    (_EXECUTION, "self._draws.manual_seed(seed)", "pass"),
    (_EXECUTION, "self._rate.fill_(self._learner.exploration_rate)", "self._rate.fill_(0.0)"),
    (_EXECUTION, "self._why_not(role) or _why_not_repeated(players)", "self._why_not(role)"),
    (_EXECUTION, "self._why_not(role) or _why_not_repeated(players)",
     "_why_not_repeated(players)"),
    (_EXECUTION, "if self._seen.get(role) == seen:", "if role in self._seen:"),
    (_EXECUTION, "            begin(player)", "            pass"),
    ("ludus/games/dqn/acting.py", "if not self._is_steady:", "if True:"),
    ("ludus/games/host_syncs.py", "self.num_syncs, self._since = 0, None", "pass"),
    (f"{_MATHS}/gym_env.py", "return self._seen(), -1.0, True, False",
     "return self._seen(), 0.0, False, False"),
    ("ludus/games/game.py", "wrong_B = wrong_B & ~over_B", "wrong_B = wrong_B & over_B"),
    ("ludus/games/playoffs.py", "start = {name: value[goes_on_B] for name, value in start.items()}", "pass"),
    ("ludus/games/tree.py", " & goes_on_B.unsqueeze(1)", ""),
    ("ludus/games/tree.py", "(*after, *before)", "(*before,)"),
    ("ludus/games/first_turn.py", "(tuple(found.shape), found.dtype) != (shape, dtype)", "False"),
    (f"{_DEVICE_PPO}/live.py", "(over_B & (self.lengths_B > 0))", "over_B"),
    (f"{_DEVICE_PPO}/collect.py", "None if is_never_over else game.over(live.state)", "None"),
    (f"{_DEVICE_PPO}/evaluate.py", "return returns_BR[has_begun_B], lengths_B[has_begun_B]",
     "return returns_BR, lengths_B"),
    (f"{_DEVICE_PPO}/learn.py", "places_N * kept_N.sum() // len(kept_N)",
     "places_N % kept_N.sum().clamp(min=1)"),
    (f"{_DEVICE_PPO}/past.py", "self.buffers[name][place].copy_(buffer)", "pass"),
    (f"{_DEVICE_PPO}/past.py", "for ring in self.rings], own)(obs_BO)",
     "for ring in self.rings])(obs_BO)"),
    (f"{_DEVICE_PPO}/undo.py", "self._parts[name].load_state_dict(state)", "pass"),
    (f"{_DEVICE_PPO}/undo.py", "self._run.counters[name] = count", "pass"),
    (f"{_DEVICE_PPO}/undo.py", "self._random.load_state_dict(self._drawn)", "pass"),
    (f"{_DEVICE_PPO}/abilities.py", "with forked(seed), self.learner", "with self.learner"),
    (f"{_DEVICE_PPO}/abilities.py", "self.learner.held.kept(), ", ""),
    (f"{_DEVICE_PPO}/abilities.py", ", plain_state_set_aside(self.network):", ":"),
    (f"{_DEVICE_PPO}/live.py", 'f"ppo/{name}", iteration)', 'f"ppo/{name}", 0)'),
    (f"{_DEVICE_PPO}/live.py", "words(self.keys.step, number, index)",
     "words(self.keys.step, 0 * number, index)"),
    (f"{_DEVICE_PPO}/waiting.py", "self.rows = None if is_last else found", "pass"),
    (f"{_DEVICE_PPO}/collect.py", "return game.over(state) & ~done_B", "return game.truncated(state)"),
    (f"{_DEVICE_PPO}/network.py", "network = without_model(network)",
     'network = getattr(network, "module", network)'),
    (f"{_DEVICE_PPO}/past.py", "if rounds == 0 or (every and", "if (every and"),
    ("ludus/games/elementwise.py", ") and own_function(game) is None", ")"),
    (f"{_DEVICE_PPO}/actor_critic.py", "type(network) is ActorCritic", "isinstance(network, ActorCritic)"),
    (f"{_DEVICE_PPO}/actor_critic.py", "        and not any(getattr(network, name) for name in HOOKS)\n", ""),
    ("ludus/games/trainers/fused_ppo.py", "            with self.learner.autocast():",
     "            if True:"),
    ("ludus/games/trainers/fused_ppo.py", "min(size - first % size, ", "min(size, "),
    (f"{_DEVICE_PPO}/clock.py", "self._since += time.monotonic() - started", "pass"),
    (f"{_DEVICE_PPO}/shuffle.py", "if self._order_of != (iteration, epoch):",
     "if self._order_of[0] != iteration:"),
    ("ludus/games/kernels/inlinable.py", "if code.co_freevars:", "if False:"),
    ("ludus/games/trainers/fused_ppo.py", "self._clock.start(self.run)", "pass"),
    ("ludus/games/rules/_drawing.py", "if 0 <= row < rows and", "if 0 <= row and"),
    ("ludus/games/export.py", "layers[-1] = fuse_linear_bn_eval(layers[-1], layer)", "pass"),
    ("ludus/games/player.py", "return actions.masked_fill(over_B, 0)", "return actions"),
    ("ludus/games/player.py", "if any(is_foreign(type(one)) for one", "if all(is_foreign(type(one)) for one"),
    ("ludus/games/matches.py", "        begin(player)", "        pass"),
    ("ludus/games/roll_out.py", "return done_B | legal_BA.any(1)", "return True"),
    ("ludus/games/rounds.py", "rounds = -(-max_steps // config.opts_a_round)",
     "rounds = max_steps // config.opts_a_round + 1"),
    (f"{_FUSED_DQN}/rho.py", "if moment.role == game.roles[0]:", "if True:"),
    (f"{_FUSED_DQN}/roll_outs.py", "        asked[role] += 1", "        pass"),
    (f"{_FUSED_DQN}/roll_outs.py", "or type(self)._roll_out is not RollOuts._roll_out", ""),
    (f"{_FUSED_DQN}/roll_outs.py", 'return "_roll_out" in vars(self) or', "return"),
    (f"{_FUSED_DQN}/role.py", "self.num_updates - self.first_update", "self.num_updates"),
    (f"{_FUSED_DQN}/role.py", ") - self.first_row", ")"),
    (f"{_FUSED_DQN}/abilities.py", "with forked(seed), self.inference", "with self.inference"),
    (f"{_FUSED_DQN}/two_roles.py", "        self._check_apart(wanted)\n", ""),
    ("ludus/games/trainers/fused_dqn.py", ", without=replaced", ""),
    ("ludus/games/player.py", "player.act(obs_BO.clone()", "player.act(obs_BO"),
    ("ludus/games/player.py", "self._writes() != self._before", "False"),
    ("ludus/games/networks.py", "zeros._version != before or ", ""),
    (f"{_RULES}/hironaka.py", "(most_B > LARGEST) & most_B.isfinite()", "most_B > LARGEST"),
    ("ludus/games/tree.py", "if not torch.equal(draws.get_state(), before):", "if False:"),
    ("ludus/store/state_folder.py", 'if point == "filled" and', 'if point == "made" and'),
    (f"{_FUSED_DQN}/abilities.py", "stream=HELD_OUT, games=episodes", "games=episodes"),
    (f"{_FUSED_DQN}/given.py", "kept.enter_context(Held(net, without=()).kept())", "pass"),
    (f"{_FUSED_DQN}/given.py", "kept.enter_context(plain_state_set_aside(net))", "pass"),
    (f"{_FUSED_DQN}/evaluation.py", "(self.game, role, kind) if is_foreign(type(known)) else known",
     "(self.game, role, kind) if False else known"),
    (f"{_FUSED_DQN}/given.py", "kept.callback(player.load_state_dict, before)", "pass"),
    (f"{_FUSED_DQN}/given.py", "Held(given.net, without=()).load(state)", "pass"),
    (f"{_FUSED_DQN}/given.py", "            if before != now:", "            if False:"),
    (f"{_FUSED_DQN}/two_roles.py", '                self.note_given(**{f"{role}_net": given})',
     "                pass"),
    (f"{_FUSED_DQN}/two_roles.py", '        self.given_classes.pop("reward_func", None)',
     "        pass"),
    (f"{_FUSED_DQN}/two_roles.py",
     "if role in self._roles and not isinstance(replaced, nn.Module):", "if False:"),
    (f"{_FUSED_DQN}/saving.py", "buffers[role].load_state_dict(learner.replay.state_dict())",
     "pass"),
    ("ludus/games/trainers/fused_dqn.py", "        self.evaluation.check_starts()", "        pass"),
    ("ludus/store/state_folder.py", "check_directory(path, lambda place: _is_ours(place, what), what=what)",
     "pass"),
    ("ludus/nn/borrowed.py", "        learner.load_weights(own)", "        pass"),
    ("ludus/nn/borrowed.py", "tensor.clone() for name", "tensor for name"),
    (f"{_FUSED_DQN}/abilities.py", "                one.learner.check_weights(own)", "                pass"),
    (f"{_FUSED_DQN}/abilities.py", "        with self._borrowing(weights), self._spared() as players:",
     "        with self._spared() as players:"),
    (f"{_DEVICE_PPO}/abilities.py", "            self.learner.check_state(saved)",
     "            self.learner.load_state_dict(saved)"),
    ("ludus/cli/tasks.py", "    refuse_edited(storage, saved, trainer.config)", "    pass"),
    (_EXECUTION, "yield from _each(player.members)", "yield player"),
    (_EXECUTION, "self._collecting.pop(role, None)\n        if why", "pass\n        if why"),
    (_EXECUTION, "if len(chosen) == 1:", "if chosen:"),
    (_EXECUTION, "stack.enter_context(player.acting.steady())", "pass"),
    (f"{_FUSED_DQN}/rollout_graph.py", "if self._restart:", "if True:"),
    (f"{_FUSED_DQN}/rollout_graph.py", "                net.refresh()", "                pass"),
    ("ludus/games/first_turn.py", "_state(game, played[0], \"play\")", "pass"),
    ("ludus/games/first_turn.py", "        state = _after(game, state, role, actions)", "        pass"),
    ("ludus/games/first_turn.py", "if truncated is not None:", "if False:"),
    ("ludus/games/tree.py", "if total > max_positions:", "if len(parents_B) > max_positions:"),
    ("ludus/games/tree.py", 'if hasattr(player, "begin"):', "if False:"),
    ("ludus/games/tree.py", "for _, one in self._all() if not one.answers)", "for _, one in self._all())"),
    ("ludus/games/playoffs.py", "checked=game.roles", "checked=()"),
    ("ludus/games/playoffs.py", "derive(seed, \"playoff moves\")", "derive(seed, f\"{agent} moves\")"),
    (f"{_FUSED_DQN}/saving.py", "role: copy.deepcopy(given)", "role: given"),
    (f"{_FUSED_DQN}/saving.py", "_load(found._role_parts(), copy.deepcopy(state))", "pass"),
    (f"{_FUSED_DQN}/saving.py", "        found.replace_nets(late)", "        pass"),
]  # fmt: skip

BREAKS = [
    (folder, *change)
    for folder, changes in zip(TESTS, (_LOSSES, _RL_AGENTS, _DATA, _NN, _GAMES), strict=True)
    for change in changes
]


def tests_of(folder: str, path: Path) -> list[list[str]]:
    """Return the tests of a folder in groups: the file's own, those that stand where it does, then all."""
    groups = []
    if path.is_relative_to(folder):
        near = Path("tests", *path.parts[1:-1])
        own = near / f"test_{path.stem.strip('_')}.py"
        groups = [[str(place)] for place in (own, near) if place.exists()]
    return [*groups, TESTS[folder]]


def changed(path: str, before: str, after: str) -> str:
    """Return the file with one place changed; it must stand there just once."""
    source = Path(path).read_text()
    if source.count(before) != 1:
        raise SystemExit(f"{path} holds {before!r} {source.count(before)} times, not once")
    return source.replace(before, after)
