"""How many rows are expected to be wrong, now and after some more answers, in; whether to go on, in words, out."""

from __future__ import annotations

from dataclasses import dataclass

# Hyper-parameters are learned anew as labels grow by this factor: few labels leave them open, and a question that is
# chosen by wrong ones is wasted. To learn after every answer was no better.
LEARN_AGAIN = 1.25
# To go on is advised where an answer is expected to mend so many rows, or all of them this share of what is wrong; and left
# to the person where an answer mends about as much as asking a wrong row itself would.
WORTH_ASKING, WORTH_GOING_ON, WORTH_ITSELF = 2.0, 0.1, 0.5


@dataclass(frozen=True)
class ExpectedGain:
    """What some more answers are worth.

    Attributes:
        n_rows: rows there are.
        errors: the expected share of rows whose class is wrong, those with a label counted as right: now, after one more
            answer to the best question, after two, and so on.
    """

    n_rows: int
    errors: tuple[float, ...]

    @property
    def n_answers(self) -> int:
        """How many answers."""
        return len(self.errors) - 1

    @property
    def n_wrong(self) -> tuple[float, ...]:
        """Rows that are expected to be wrong: now, after one more answer, and so on."""
        return tuple(self.n_rows * each for each in self.errors)

    def in_words(self) -> str:
        """What is wrong now, what would be after one more and after all answers, and whether to go on."""
        now, one, last = self.n_wrong[0], self.n_wrong[min(1, self.n_answers)], self.n_wrong[-1]
        if now < 0.5:
            return f"Hardly any of {self.n_rows:,} rows is expected to be wrong: you can stop."
        later = f" and {_about(last)} after {self.n_answers:,} more" if self.n_answers > 1 else ""
        told = f"About {_about(now)} of {self.n_rows:,} rows are expected to be wrong now, {_about(one)} after one more answer{later}. "
        rate = (now - last) / max(1, self.n_answers)
        if rate >= WORTH_ASKING or now - last >= WORTH_GOING_ON * now:
            return told + "Go on."
        if rate >= WORTH_ITSELF:
            return told + "Each answer hardly mends more than its own row: stop when that is not worth it."
        return told + f"More answers mend little of that: stop if about {_about(last)} wrong rows will do."


def _about(n: float) -> str:
    return f"{n:,.0f}" if n >= 10 else f"{n:.1f}"
