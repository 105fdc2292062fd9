"""What ``attn-course train`` does."""

from attn_course.train.recipes import RECIPES, report, run_recipe


def listing() -> list[str]:
    """One line per recipe."""
    return [f"{name:14}{recipe.summary}" for name, recipe in RECIPES.items()]


def train(name: str, *, folder: str, steps: int | None, seed: int, resume: bool) -> list[str]:
    """Run a recipe with progress; the lines of its report.

    Raises:
        ValueError: As ``run_recipe``.
        KeyboardInterrupt: After Ctrl-C; the checkpoint is saved.
    """
    model, history = run_recipe(
        name, folder=folder, steps=steps, seed=seed, resume=resume, progress=True
    )
    return report(name, model, history)
