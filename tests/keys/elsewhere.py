"""Keys of the arena and of loggers that tests of their own folders show."""

from __future__ import annotations

from ludus.config.families import listed
from tests.keys.table import ARENA, ARENA_RL, shown_elsewhere

PROTOCOLS = [kind for kind in listed("protocol") if kind not in ("parallel", "zero_knowledge")]
ROUNDS = "protocol debate, protocol mnip, protocol multi_channel_test, protocol nip"
PROVERS = f"{ROUNDS}, protocol adp, protocol merlin_arthur"
LOAD = ("load", "load.run", "load.model", "load.agent")

_of_protocols = "arena/protocols/test_keys.py::test_a_key_changes_the_episode_as_its_sentence_says"
for _kind in PROTOCOLS:
    shown_elsewhere(
        _of_protocols, f"protocol {_kind}", "kind", "force_guess", "verifier_reward",
        "verifier_incorrect_reward", "verifier_terminated_reward",
    )  # fmt: skip
shown_elsewhere(_of_protocols, PROVERS, "shared_reward", "prover_reward")
shown_elsewhere(
    _of_protocols, ROUNDS, "max_message_rounds", "min_message_rounds", "verifier_continue_reward"
)
shown_elsewhere(_of_protocols, "protocol debate", "provers_hear_each_other")
shown_elsewhere(_of_protocols, "protocol debate, protocol mnip", "sequential", "prover0_first")
shown_elsewhere(_of_protocols, "protocol nip, protocol mnip, protocol debate", "verifier_first")
shown_elsewhere(
    _of_protocols, "protocol zero_knowledge", "kind", "base.kind", "simulator_reward",
    "adversary_penalty", "prover_simulated_reward",
)  # fmt: skip

_graphs = "arena/scenarios/test_graph_isomorphism.py::"
_of_graphs = "scenario graph_isomorphism"
shown_elsewhere(
    f"{_graphs}test_sizes_are_the_numbers_of_nodes_and_decide_the_symbols", _of_graphs, "sizes"
)
shown_elsewhere(
    f"{_graphs}test_edges_are_as_likely_as_the_config_says", _of_graphs, "edge_probabilities"
)
shown_elsewhere(
    f"{_graphs}test_the_share_of_pairs_that_are_not_isomorphic_is_exact", _of_graphs,
    "non_isomorphic_share",
)  # fmt: skip
shown_elsewhere(
    f"{_graphs}test_scores_are_in_the_proportions_asked_for", _of_graphs,
    "wl_scores.score_1", "wl_scores.score_2", "wl_scores.more",
)  # fmt: skip
shown_elsewhere(
    f"{_graphs}test_there_are_as_many_pairs_as_the_config_says", _of_graphs,
    "train_size", "validation_size", "test_size",
)  # fmt: skip
_images = "arena/scenarios/test_image_classification.py::"
_of_images = "scenario image_classification"
shown_elsewhere(
    f"{_images}test_the_label_says_which_group_a_digit_is_in", _of_images, "classes_0", "classes_1"
)
shown_elsewhere(f"{_images}test_a_symbol_is_a_patch", _of_images, "patch_size")
shown_elsewhere(
    f"{_images}test_no_image_is_in_two_datasets_and_each_has_its_size", _of_images,
    "train_size", "validation_size", "test_size",
)  # fmt: skip
_tiny = "arena/scenarios/test_tiny.py::"
shown_elsewhere(
    f"{_tiny}test_the_label_is_the_parity_of_the_first_bits", "scenario tiny", "num_deciding"
)
shown_elsewhere(
    f"{_tiny}test_there_are_as_many_rows_bits_and_symbols_as_the_config_says", "scenario tiny",
    "num_bits", "num_symbols", "train_size", "validation_size", "test_size",
)  # fmt: skip
shown_elsewhere(
    "arena/scenarios/test_every_scenario.py::test_agents_are_trained_in_it",
    "scenario tiny, scenario graph_isomorphism, scenario image_classification", "kind",
)  # fmt: skip

_zoo = "arena/pettingzoo/test_keys.py::"
shown_elsewhere(
    f"{_zoo}test_envs_of_pettingzoo_are_trained_in", "scenario pettingzoo", "kind", "env"
)
shown_elsewhere(f"{_zoo}test_envs_of_pettingzoo_are_trained_in", "protocol parallel", "kind")
shown_elsewhere(
    f"{_zoo}test_an_episode_is_cut_after_so_many_steps_to_learn_and_to_judge",
    "scenario pettingzoo", "max_episode_steps",
)  # fmt: skip
shown_elsewhere(
    f"{_zoo}test_an_iteration_has_so_many_steps_of_so_many_envs", ARENA_RL,
    "rl.steps_per_env_per_iteration",
)  # fmt: skip
shown_elsewhere(
    f"{_zoo}test_a_vector_body_is_as_deep_wide_and_smooth_as_its_keys_say", "body vector",
    "kind", "widths", "activation",
)  # fmt: skip
shown_elsewhere(
    "arena/pettingzoo/test_normalise.py::"
    "test_statistics_are_kept_with_the_weights_and_without_the_key_there_are_none",
    "body vector", "normalise_observations",
)  # fmt: skip

_bodies = "arena/agents/"
shown_elsewhere(f"{_bodies}test_every_body.py::test_its_features_are_as_many_as_it_says",
                "body cnn, body gnn, body mlp", "kind")  # fmt: skip
shown_elsewhere(
    f"{_bodies}test_cnn.py::test_layers_and_width_are_those_of_the_config", "body cnn",
    "num_layers", "width",
)  # fmt: skip
shown_elsewhere(
    f"{_bodies}test_cnn.py::test_one_that_sees_named_patches_is_blind_to_the_others",
    "body cnn",
    "sees",
)
shown_elsewhere(
    f"{_bodies}test_gnn.py::"
    "test_it_tells_apart_just_the_pairs_whose_score_is_not_above_its_layers",
    "body gnn", "num_layers",
)  # fmt: skip
shown_elsewhere(
    f"{_bodies}test_gnn.py::test_width_is_the_number_of_features_of_a_node", "body gnn", "width"
)
shown_elsewhere(
    f"{_bodies}test_gnn.py::"
    "test_one_that_compares_tells_a_node_how_like_it_is_to_those_named_in_the_other_graph",
    "body gnn", "compares",
)  # fmt: skip
shown_elsewhere(f"{_bodies}test_mlp.py::test_widths_are_the_layers", "body mlp", "widths")
shown_elsewhere(
    f"{_bodies}test_random.py::test_it_says_every_symbol_alike_and_never_decides",
    "arena_agent random", "kind",
)  # fmt: skip
shown_elsewhere(
    f"{_bodies}test_random.py::test_one_that_is_to_learn_is_refused", "arena_agent random",
    "update_schedule",
)  # fmt: skip
shown_elsewhere(
    f"{_bodies}test_random.py::test_weights_cannot_be_loaded_into_it", "arena_agent random", *LOAD
)

_loading = "arena/initialisation/test_loading.py::"
shown_elsewhere(
    f"{_loading}test_a_body_from_a_run_of_agents_alone_fits_an_rl_agent", "arena_agent parts",
    "load", "load.run",
)  # fmt: skip
shown_elsewhere(
    f"{_loading}test_another_model_of_the_earlier_run_gives_other_weights", "arena_agent parts",
    "load.model",
)  # fmt: skip
shown_elsewhere(
    f"{_loading}test_another_agent_of_the_earlier_run_gives_other_weights", "arena_agent parts",
    "load.agent",
)  # fmt: skip
_before = "arena/initialisation/test_pretraining.py::"
shown_elsewhere(
    f"{_before}test_pretraining_is_what_a_run_of_solo_agent_does", ARENA_RL, "pretraining"
)
shown_elsewhere(
    f"{_before}test_an_agent_that_is_not_named_is_not_pretrained", ARENA_RL, "pretraining.agents"
)
shown_elsewhere(
    f"{_before}test_each_key_changes_what_is_learned", ARENA_RL,
    "pretraining.iterations", "pretraining.batch_size", "pretraining.optimizer",
)  # fmt: skip

_rerun = "arena/trainers/test_rerun_tests.py::"
shown_elsewhere(
    f"{_rerun}test_every_kept_model_is_tested_under_the_counters_of_its_training",
    "rerun_tests",
    "run",
)
shown_elsewhere(f"{_rerun}test_a_named_model_alone_is_tested", "rerun_tests", "models")
shown_elsewhere(
    f"{_rerun}test_agents_of_each_checkpoint_are_tested_too_where_that_is_asked_for", "rerun_tests",
    "checkpoints",
)  # fmt: skip
shown_elsewhere(
    f"{_rerun}test_more_episodes_and_other_ones_give_other_numbers", "rerun_tests",
    "episodes", "other_episodes", "seed",
)  # fmt: skip

_refused = "arena/test_bad_input.py::test_a_config_with_a_mistake_is_refused_in_a_sentence"
shown_elsewhere(_refused, ARENA, "settings.workers", "settings.checkpoint.every_epochs")
shown_elsewhere(
    "arena/test_statistics.py::test_message_information_is_a_bit_where_symbols_give_the_label_away",
    "analyser message_information", "kind",
)  # fmt: skip

shown_elsewhere(
    "supervised/test_learning_rates.py::test_a_run_on_a_plateau_reduces_its_learning_rate",
    "schedule plateau",
    "kind", "warmup_steps", "metric", "mode", "factor", "patience", "min_delta", "cooldown", "minimum",
)  # fmt: skip
shown_elsewhere(
    "supervised/test_learning_rates.py::test_a_function_of_the_step_scales_the_learning_rate",
    "schedule given",
    "kind",
)
shown_elsewhere(
    "supervised/test_own_optimizers.py::test_the_given_kind_starts_from_its_learning_rate",
    "optimizer given",
    "kind",
    "learning_rate",
)

_loggers = "session/loggers/"
_is_shown = "test_a_run_is_shown_with_its_name_group_tags_config_metrics_files_and_best_model"
shown_elsewhere(
    f"{_loggers}test_mlflow.py::{_is_shown}", "logger mlflow",
    "kind", "tracking_uri", "experiment", "tags", "best_model",
)  # fmt: skip
shown_elsewhere(
    f"{_loggers}test_mlflow.py::test_an_end_does_not_wait_for_a_server_that_accepts_and_is_silent",
    "logger mlflow", "wait_seconds",
)  # fmt: skip
shown_elsewhere(
    f"{_loggers}test_wandb.py::{_is_shown}", "logger wandb",
    "kind", "project", "entity", "tags", "best_model",
)  # fmt: skip
shown_elsewhere(
    f"{_loggers}test_wandb.py::test_without_a_network_an_online_run_goes_on_offline_and_says_so_once",
    "logger wandb", "mode", "wait_seconds",
)  # fmt: skip
