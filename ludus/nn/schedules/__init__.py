"""The kinds of schedules, one per file or in `_table.py`; their common code is in `ludus/nn/schedule.py`."""

from ludus.nn.schedule import LearningRateScheduleSection as LearningRateScheduleSection
from ludus.nn.schedule import Schedule as Schedule
from ludus.nn.schedule import ScheduleConfig as ScheduleConfig
from ludus.nn.schedule import Scheduler as Scheduler
from ludus.nn.schedule import ScheduleSection as ScheduleSection
from ludus.nn.schedule import highest as highest
from ludus.nn.schedule import too_long as too_long
