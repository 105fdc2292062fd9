"""A call on the learner's function, and what came of it."""

import functools
from collections.abc import Callable
from typing import Any

from attn_course.probes.catalogue import Call
from attn_course.probes.outcome import Outcome, run


class Record:
    """A call on the learner's function, and what came of it.

    Args:
        call: The call.
        outcome: What came of it; None makes the call when somebody asks.
        function: The learner's function, needed where ``outcome`` is None.
    """

    def __init__(
        self, call: Call, outcome: Outcome | None, *, function: Callable[..., Any] | None = None
    ) -> None:
        self.call = call
        self.function = function
        if outcome is not None:
            self.outcome = outcome

    @functools.cached_property
    def outcome(self) -> Outcome:
        """What came of the call."""
        if self.function is None:
            raise ValueError("function: expected a callable where there is no outcome, got None")
        return run(self.function, self.call)
