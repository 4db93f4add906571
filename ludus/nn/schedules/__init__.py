"""The kinds of schedules, one per file or in `_table.py`; their common code is in `ludus/nn/schedule.py`."""

from ludus.nn.schedule import (
    LearningRateScheduleSection as LearningRateScheduleSection,
    Schedule as Schedule,
    ScheduleConfig as ScheduleConfig,
    Scheduler as Scheduler,
    ScheduleSection as ScheduleSection,
    highest as highest,
    too_long as too_long,
)
