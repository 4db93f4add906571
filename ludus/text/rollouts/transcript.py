"""Transcript of an episode of text, as the page of transcripts shows it."""

from ludus.show.transcripts.transcript import Transcript as Transcript, TurnText as TurnText
