"""A progress bar on a terminal, a line now and then elsewhere."""

import sys
from importlib.util import find_spec
from typing import Any

from attn_course._extras import need
from attn_course.train.history import History

_SMOOTHED_OVER = 20


class Progress:
    """Shows how far a run is; everything goes to standard error.

    Args:
        steps: Steps of the whole run.
        start: Steps done before.
        show: True: a bar on a terminal, ten lines in all elsewhere (log files, CI, notebooks);
            False: nothing; None: a bar on a terminal where tqdm is installed, else nothing.

    Raises:
        ModuleNotFoundError: If ``show`` asks for a bar and tqdm is not installed.
    """

    def __init__(self, steps: int, *, start: int = 0, show: bool | None = None) -> None:
        terminal = sys.stderr.isatty()
        self.steps = steps
        self.lines = bool(show) and not terminal
        self.bar: Any = None
        if terminal and (show or (show is None and find_spec("tqdm") is not None)):
            tqdm = need("tqdm", "train", "a progress bar").tqdm
            self.bar = tqdm(total=steps, initial=start, unit="step")

    def update(self, history: History) -> None:
        """Show the last step of the history."""
        done = len(history)
        recent = history.loss[-_SMOOTHED_OVER:]
        if self.bar is not None:
            self.bar.set_postfix(loss=f"{sum(recent) / len(recent):.4g}", refresh=False)
            self.bar.update()
        if self.lines and (done * 10 // self.steps > (done - 1) * 10 // self.steps):
            seconds = sum(history.seconds)
            print(
                f"step {done}/{self.steps}  loss {sum(recent) / len(recent):.4g}"
                f"  lr {history.lr[-1]:.3g}  {seconds:.1f} s",
                file=sys.stderr,
                flush=True,
            )

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self.bar is not None:
            self.bar.close()
