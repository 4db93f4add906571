"""Text: agents that are language models behind an API, trained through it; and a local server that speaks it.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.text.analyser import TextAnalyser as TextAnalyser
    from ludus.text.chat import (
        ChatAnswer as ChatAnswer,
        ChatChoice as ChatChoice,
        ChatMessage as ChatMessage,
        ChatRequest as ChatRequest,
        TokenLogprob as TokenLogprob,
    )
    from ludus.text.config import (
        TextAgentParameters as TextAgentParameters,
        TextHyperParameters as TextHyperParameters,
    )
    from ludus.text.expert_iteration.selection import conversations as conversations
    from ludus.text.groups import PureTextSharedModelGroup as PureTextSharedModelGroup
    from ludus.text.jobs import Job as Job, JobSpec as JobSpec
    from ludus.text.models.language_model import (
        LanguageModel as LanguageModel,
        load_model as load_model,
        save_model as save_model,
    )
    from ludus.text.models.new_model import (
        NewModelConfig as NewModelConfig,
        make_model as make_model,
    )
    from ludus.text.nested import NestedArrayDict as NestedArrayDict
    from ludus.text.provider import (
        ModelInfo as ModelInfo,
        Provider as Provider,
        ProviderConfig as ProviderConfig,
        ProviderError as ProviderError,
        ProviderServices as ProviderServices,
    )
    from ludus.text.rollouts.episodes import TextEpisode as TextEpisode, Turn as Turn
    from ludus.text.scenario import (
        TextDataset as TextDataset,
        TextDatasets as TextDatasets,
        TextScenario as TextScenario,
        TextScenarioConfig as TextScenarioConfig,
    )
    from ludus.text.server.start import ServerHandle as ServerHandle, start_server as start_server
    from ludus.text.trainer import PureTextRlTrainer as PureTextRlTrainer
    from ludus.text.training_client import TrainingClient as TrainingClient
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
