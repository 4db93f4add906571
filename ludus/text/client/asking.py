"""Answer one chat request: from the journal, the cache or the provider; reserved, booked and written down."""

from __future__ import annotations

from dataclasses import dataclass, field

from ludus.core.errors import LudusError
from ludus.text.chat import ChatAnswer, ChatRequest
from ludus.text.client.answers import AnswerJournal, AnswerRecord
from ludus.text.client.attempts import Attempts
from ludus.text.client.cache import ResponseCache
from ludus.text.client.ledger import BudgetSpent, Ledger
from ludus.text.client.spending import NOTHING, Amount, Payer, Spent, spent_on
from ludus.text.provider import Provider, ProviderError


@dataclass
class _Asked:
    """A request on its way."""

    key: str
    digest: str
    payer: Payer
    spent: Spent
    """What its tries up to now have cost."""
    booked: Spent
    """What the ledger has counted for it."""
    is_sent: bool = False
    """Whether a try is in flight, which the provider may charge for."""
    is_open: bool = False
    """Whether the journal says that it is on its way."""
    reserved: Amount = field(default=NOTHING)


class ChatAsking:
    """Asks for the answers of one iteration."""

    def __init__(
        self,
        provider: Provider,
        *,
        answers: AnswerJournal,
        attempts: Attempts,
        ledger: Ledger,
        cache: ResponseCache | None,
        is_recorded: bool,
    ) -> None:
        """`is_recorded` says whether the journal keeps the answers themselves."""
        self._provider, self._answers, self._attempts = provider, answers, attempts
        self._ledger, self._cache, self._is_recorded = ledger, cache, is_recorded
        self._keys: set[str] = set()

    async def answer(self, request: ChatRequest, *, key: str, agent: str, stage: str) -> ChatAnswer:
        """Return the samples of a request."""
        digest = request.digest()
        record = self._answers.find(key)
        if record is not None and record.digest == digest and record.answer is not None:
            return record.answer
        if key in self._keys:
            raise LudusError(f"two requests have the key {key!r} at a time; give each its own")
        payer = Payer(agent, stage, request.model)
        # What an earlier request of this key cost is lost, for its answer is not used.
        booked = Spent() if record is None else record.closed()
        asked = _Asked(key, digest, payer, booked.as_lost(), booked)
        if record is not None and record.payer != payer:
            self._ledger.book(self._answers.iteration, record.payer, Spent(), instead_of=booked)
            asked.booked = Spent()
        self._keys.add(key)
        try:
            return await self._find(request, asked)
        finally:
            self._keys.discard(key)

    async def _find(self, request: ChatRequest, asked: _Asked) -> ChatAnswer:
        if self._cache is None:
            return await self._ask(request, asked)
        if (answer := self._cache.get(request)) is None:
            answer = await self._ask(request, asked)
            self._cache.put(request, answer)
        else:
            self._note(asked, answer=answer)
        return answer

    async def _ask(self, request: ChatRequest, asked: _Asked) -> ChatAnswer:
        worst = self._ledger.worst_of(request)
        await self._reserve(asked, worst)

        async def send() -> ChatAnswer:
            # Written before it is sent, so that a kill does not make the run forget what it costs.
            if not asked.is_open:
                self._note(asked, is_open=True)
            asked.is_sent = True
            return await self._provider.chat(request)

        async def failed(error: ProviderError) -> None:
            asked.is_sent = False
            if not error.is_known:
                self._lose(asked)
                self._note(asked, is_open=True)
                # The next try may cost as much again.
                await self._reserve(asked, worst)

        try:
            answer = await self._attempts.sampled(send, tokens=worst.tokens, on_failure=failed)
            asked.spent.add(spent_on(answer, self._ledger.price_of(request.model)))
            self._note(asked, answer=answer)
        except BaseException:
            if asked.is_sent:
                self._lose(asked)
            if asked.is_open:
                self._note(asked)
            raise
        finally:
            self._free(asked)
        return answer

    async def _reserve(self, asked: _Asked, worst: Amount) -> None:
        self._free(asked)
        what = f"the next request of {asked.payer.agent} to {asked.payer.model}"
        try:
            await self._ledger.reserve(worst, what=what)
        except BudgetSpent as error:
            # What is in flight fits, and is still answered.
            self._attempts.stop(error)
            raise
        asked.reserved = worst

    def _free(self, asked: _Asked) -> None:
        if asked.reserved != NOTHING:
            self._ledger.free(asked.reserved)
            asked.reserved = NOTHING

    def _lose(self, asked: _Asked) -> None:
        """Count a try without an answer as what it may have cost at most."""
        tokens, cost = asked.reserved
        asked.spent.add(Spent(lost_requests=1, lost_tokens=tokens, lost_cost=cost))
        asked.is_sent = False

    def _note(
        self, asked: _Asked, *, is_open: bool = False, answer: ChatAnswer | None = None
    ) -> None:
        """Write down how far a request has come, and book what it has cost."""
        spent = asked.spent.copy()
        asked.is_open = is_open
        self._answers.put(
            asked.key,
            AnswerRecord(
                asked.digest,
                asked.payer,
                asked.reserved if is_open else None,
                spent,
                answer if self._is_recorded else None,
            ),
        )
        iteration = self._answers.iteration
        self._ledger.book(iteration, asked.payer, spent, instead_of=asked.booked)
        asked.booked = spent
