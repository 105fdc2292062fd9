"""The command line: ``attn-course exercises``, ``check``, ``data``, ``train``."""

import atexit
import contextlib
import os
import sys
import threading
from pathlib import Path
from typing import Annotated, NoReturn

from attn_course._extras import need

need("typer", "cli", "the command line")

import typer

app = typer.Typer(
    name="attn-course",
    help="A course on attention that can be read, run, done and graded.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
exercises = typer.Typer(
    help="Make the released notebooks from their sources.", no_args_is_help=True
)
app.add_typer(exercises, name="exercises")


@app.callback(invoke_without_command=True)
def about(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """A course on attention that can be read, run, done and graded."""
    if version:
        from attn_course import __version__

        typer.echo(f"attn-course {__version__}")
        raise typer.Exit


new = typer.Typer(help="Lay out something new in a checkout.", no_args_is_help=True)
app.add_typer(new, name="new")

Slugs = Annotated[list[str] | None, typer.Argument(metavar="[SLUG]...", help="All when left out.")]


def fail(message: str, *, code: int = 2) -> NoReturn:
    """Print one line to stderr and leave."""
    typer.echo(f"attn-course: error: {message}", err=True)
    raise typer.Exit(code)


def _need(module: str, install: str = "'attn-course[grading]'") -> None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        fail(f"this needs {module}: pip install {install}")


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # those that this process may use
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _checkout(slugs: list[str] | None) -> tuple[Path, list[str]]:
    from attn_course.exercises.release import ReleaseError, find_root
    from attn_course.exercises.source import find_slugs

    try:
        root = find_root(Path.cwd())
    except ReleaseError as error:
        fail(str(error))
    known = find_slugs(root)
    for slug in slugs or ():
        if slug not in known:
            fail(f"no exercise set {slug!r}; there are: {', '.join(known) or 'none'}")
    return root, [slug for slug in known if not slugs or slug in slugs]


@exercises.command("build")
def exercises_build(
    slugs: Slugs = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; compare with what is there.")
    ] = False,
    core: Annotated[bool, typer.Option("--core", help="Leave out what is optional.")] = False,
) -> None:
    """Build the releases in exercises/ (and the sources in build/source/ for nbgrader)."""
    if check:
        exercises_check(slugs)
        return
    _need("nbgrader")  # its extra brings jupytext too
    _need("jupytext", "jupytext")
    from attn_course.exercises.release import ReleaseError, build_releases

    root, chosen = _checkout(slugs)
    try:
        written = build_releases(root, chosen, core=core)
    except ReleaseError as error:
        fail(str(error), code=1)
    for path in written:
        typer.echo(path.relative_to(root))


@exercises.command("check")
def exercises_check(slugs: Slugs = None) -> None:
    """Fail when a committed release differs from its source or gives something away."""
    _need("nbgrader")  # its extra brings jupytext too
    _need("jupytext", "jupytext")
    from attn_course.exercises.release import ReleaseError, check_releases

    root, chosen = _checkout(slugs)
    try:
        problems = check_releases(root, chosen)
    except ReleaseError as error:
        fail(str(error), code=1)
    for problem in problems:
        typer.echo(f"attn-course: {problem}", err=True)
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{len(chosen)} releases are what their sources make, and give nothing away")


@exercises.command("list")
def exercises_list() -> None:
    """List the exercise sets of this checkout with their functions and points."""
    root, chosen = _checkout(None)  # where there is none, no package would help
    _need("jupytext", "jupytext")
    from attn_course.exercises.source import read_exercise, solution_names

    for slug in chosen:
        try:
            notebook = read_exercise(root / "solutions" / slug / "exercise.py")
        except ValueError as error:
            fail(str(error), code=1)
        metas = [cell.metadata.get("nbgrader", {}) for cell in notebook.cells]
        points = sum(meta.get("points", 0) for meta in metas)
        typer.echo(f"{slug}  {points:g} points  {', '.join(solution_names(notebook))}")


@exercises.command("vary")
def exercises_vary(
    seed: Annotated[
        str,
        typer.Option(
            envvar="ATTN_COURSE_VARY_SEED",
            help="A secret of at least 32 hexadecimal digits; 'new' draws one and prints it.",
        ),
    ],
    slugs: Slugs = None,
    out: Annotated[Path, typer.Option(help="Folder outside of git.")] = Path("build/variants"),
) -> None:
    """Make private variants of sets: other names, orders and masks, with tests of their own."""
    _need("nbgrader")  # its extra brings jupytext too
    _need("jupytext", "jupytext")
    from attn_course.exercises.release import ReleaseError
    from attn_course.exercises.vary import new_secret, read_secret, release_variants

    root, chosen = _checkout(slugs)
    try:
        text = new_secret() if seed == "new" else seed
        written = release_variants(root, chosen, read_secret(text), out)
    except (ValueError, ReleaseError) as error:
        fail(str(error))
    if seed == "new":
        typer.echo(f"keep this secret, and where no student reads: --seed {text}")
    for path in written:
        typer.echo(path)


@new.command("chapter")
def new_chapter(
    slug: Annotated[str, typer.Argument(help="Such as 07_scaled_dot_product.")],
    set_only: Annotated[bool, typer.Option("--set-only", help="No page, no entries.")] = False,
) -> None:
    """Lay out a chapter: page, exercise set, entries in the contents and the claims."""
    from attn_course.exercises.release import find_root
    from attn_course.exercises.scaffold import lay_out

    try:
        root = find_root(Path.cwd())
        for path in lay_out(root, slug, set_only=set_only):
            typer.echo(path.relative_to(root))
    except ValueError as error:
        fail(str(error))
    tests = f"pytest tests/test_coverage.py tests/exercises -k {slug}"
    typer.echo(f"next: 'make exercises', then '{tests}': it lists the rules not kept yet")


@app.command()
def fork(
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="On GitHub.")],
) -> None:
    """Make this checkout a fork's own: its address instead of that of the original."""
    import re
    import subprocess

    from attn_course.exercises.source import repository

    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        fail(f"expected OWNER/NAME, got {name!r}")
    root, _ = _checkout(None)
    try:
        old = repository(root).removeprefix("https://")
        listed = subprocess.check_output(
            ["git", "grep", "-lIF", old, "--", ".", ":!CHANGELOG.md"], cwd=root, text=True
        )
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        fail(str(error))
    for path in map(root.joinpath, listed.splitlines()):
        text = path.read_bytes().decode()
        new = re.sub(rf"{re.escape(old)}(?![\w-])", f"github.com/{name}", text)
        path.write_bytes(new.encode())
        typer.echo(path.relative_to(root))
    typer.echo("next: 'make exercises', then commit")


@app.command()
def check(
    notebooks: Annotated[list[Path], typer.Argument(help="Notebooks with your answers.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that one cell may take.", min=1)] = 60,
    seed: Annotated[int | None, typer.Option(help="Draw the random inputs from this seed.")] = None,
) -> None:
    """Run your notebook from top to bottom and say what everything that grades makes of it."""
    from attn_course.exercises.check import check_notebooks

    raise typer.Exit(check_notebooks(notebooks, as_json=as_json, timeout=timeout, seed=seed))


@app.command()
def grade(
    submissions: Annotated[
        Path, typer.Argument(help="Folder <student>/<slug>/<slug>.ipynb, a notebook, or a zip.")
    ],
    assignment: Annotated[str, typer.Option(help="Slug of the exercise set.")],
    source: Annotated[
        Path | None, typer.Option(help="Your version of the notebook, if not that of solutions/.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes on this machine [default: one for each core].", min=1),
    ] = None,
    scheduler: Annotated[str | None, typer.Option(help="Address of a dask scheduler.")] = None,
    gradebook: Annotated[
        str,
        typer.Option(help="SQLAlchemy address, or 'none' [default: as nbgrader_config.py says]."),
    ] = "",
    json_path: Annotated[
        str | None, typer.Option("--json", help="Write JSON here; - prints it.")
    ] = None,
    gradescope: Annotated[
        Path | None, typer.Option(help="Write results.json, or a folder of them.")
    ] = None,
    csv: Annotated[str | None, typer.Option(help="Write marks here; - prints them.")] = None,
    csv_form: Annotated[str, typer.Option(help="plain, canvas or moodle.")] = "plain",
    tests_only: Annotated[
        bool, typer.Option("--tests-only", help="Marks and points without the written answers.")
    ] = False,
    feedback: Annotated[
        Path | None, typer.Option(help="A page per student: a folder, or a zip to upload.")
    ] = None,
    class_list: Annotated[
        Path | None, typer.Option(help="CSV of Canvas or Moodle: who is missing, and names.")
    ] = None,
    without_advisory: Annotated[
        bool, typer.Option("--without-advisory", help="Leave out what trusts the notebook.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Wall-clock seconds of a submission.", min=1)] = 60,
    call_timeout: Annotated[float, typer.Option(help="Seconds of one call.", min=0.1)] = 10,
    seed: Annotated[int | None, typer.Option(help="Grade with these random inputs.")] = None,
    no_sandbox: Annotated[
        bool, typer.Option("--no-sandbox", help="Where the jail cannot start; unsafe.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget what an earlier run has graded.")
    ] = False,
) -> None:
    """Grade a class safely: every submission in a jail, every verdict outside it."""
    _need("nbgrader")
    from attn_course.grading.command import grade as grade_submissions

    raise typer.Exit(
        grade_submissions(
            submissions,
            slug=assignment,
            root=Path.cwd(),
            source=source,
            workers=workers or _cores(),
            scheduler=scheduler,
            gradebook=gradebook,
            json_path=json_path,
            gradescope=gradescope,
            csv_path=csv,
            csv_form=csv_form,
            tests_only=tests_only,
            feedback=feedback,
            class_list=class_list,
            without_advisory=without_advisory,
            timeout=timeout,
            call_timeout=call_timeout,
            seed=seed,
            sandbox=not no_sandbox,
            fresh=fresh,
        )
    )


@app.command()
def precheck(
    submissions: Annotated[
        Path, typer.Argument(help="Folder <student>/<slug>/<slug>.ipynb, a notebook, or a zip.")
    ],
    assignment: Annotated[str, typer.Option(help="Slug of the exercise set.")],
    source: Annotated[
        Path | None, typer.Option(help="Your version of the notebook, if not that of solutions/.")
    ] = None,
) -> None:
    """List what is wrong with the files of a class; runs nothing and needs no jail."""
    _need("nbformat")
    from attn_course.grading.command import precheck as look

    raise typer.Exit(look(submissions, slug=assignment, root=Path.cwd(), source=source))


@app.command()
def term(
    tables: Annotated[list[Path], typer.Argument(help="What 'grade --csv' wrote, one a set.")],
    weights: Annotated[str, typer.Option(help="SLUG=NUMBER,...; 1 where none is given.")] = "",
    drop: Annotated[int, typer.Option(help="Leave out so many of each one's worst marks.")] = 0,
    class_list: Annotated[
        Path | None,
        typer.Option("--class-list", "--class", help="CSV of the platform: who is missing."),
    ] = None,
    by: Annotated[str, typer.Option(help="Tell students apart by student or by name.")] = "student",
    csv: Annotated[str, typer.Option(help="Write the table here; - prints it.")] = "-",
) -> None:
    """Put a term's tables of marks together: totals in per cent, 0 for what is missing."""
    from attn_course.grading.command import term as put_together

    raise typer.Exit(
        put_together(tables, weights=weights, drop=drop, class_list=class_list, by=by, csv_path=csv)
    )


data = typer.Typer(help="Find and download the real data sets.", no_args_is_help=True)
app.add_typer(data, name="data")


@data.command("list")
def data_list() -> None:
    """List the files of the data sets and whether they are on this machine."""
    _need("pooch", "'attn-course[data]'")
    from attn_course.data import DataError
    from attn_course.data.cli import listing

    try:
        typer.echo("\n".join(listing()))
    except DataError as error:
        fail(str(error), code=1)


@data.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="multi30k or tinyshakespeare.")],
) -> None:
    """Download a data set, or check the one that is here; print its paths."""
    _need("pooch", "'attn-course[data]'")
    from attn_course.data import DataError
    from attn_course.data.cli import fetch_dataset

    try:
        typer.echo("\n".join(fetch_dataset(name)))
    except ValueError as error:
        fail(str(error))
    except DataError as error:
        fail(str(error), code=1)


@data.command("where")
def data_where() -> None:
    """Print the folders in which data sets are looked for."""
    _need("pooch", "'attn-course[data]'")
    from attn_course.data import DataError
    from attn_course.data.cli import where

    try:
        typer.echo("\n".join(where()))
    except DataError as error:
        fail(str(error), code=1)


@app.command()
def write(
    beginning: Annotated[str, typer.Argument(help="What the text begins with.")] = "\n",
    length: Annotated[int, typer.Option(help="New characters.", min=1)] = 400,
    temperature: Annotated[float, typer.Option(help="0: always the likeliest.", min=0)] = 0.7,
    top_p: Annotated[
        float | None, typer.Option(help="Draw from the likeliest that sum to this.", min=0, max=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed, another text.", min=0)] = 0,
    about: Annotated[bool, typer.Option("--about", help="What the model is, and stop.")] = False,
) -> None:
    """Let the course's own language model continue a text in the manner of Shakespeare."""
    _need("safetensors", "'attn-course[data]'")
    from itertools import islice

    from attn_course.data.language_model import load_language_model, model_card
    from attn_course.train import stream

    if about:
        for name, value in model_card().items():
            typer.echo(f"{name}: {value}")
        return
    model, characters = load_language_model()
    try:
        prompt = characters.encode(beginning)
        drawn = stream(model, prompt, context=256, temperature=temperature, top_p=top_p, seed=seed)
        typer.echo(beginning, nl=False)
        for token in islice(drawn, length):
            typer.echo(characters.alphabet[token], nl=False)
        typer.echo()
    except ValueError as error:
        fail(str(error))
    except KeyboardInterrupt:
        typer.echo()


@app.command()
def train(
    recipe: Annotated[
        str | None, typer.Argument(help="What to train; without it, the recipes are listed.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder of the run [default: runs/RECIPE].")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Length of the run.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Of parameters and data.", min=0)] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run stopped.")] = False,
) -> None:
    """Train a small sequence-to-sequence model; Ctrl-C saves, --resume goes on."""
    from attn_course.train.cli import listing
    from attn_course.train.cli import train as run

    if recipe is None:
        typer.echo("\n".join(listing()))
        return
    out = folder if folder is not None else Path("runs") / recipe
    try:
        lines = run(recipe, folder=str(out), steps=steps, seed=seed, resume=resume)
    except ValueError as error:
        fail(str(error))
    except FloatingPointError as error:
        fail(str(error), code=1)
    except KeyboardInterrupt:
        fail(f"interrupted; the run is kept in {out}: --resume goes on", code=130)
    typer.echo("\n".join(lines))


def main() -> None:
    """The program: a command, and then no more than must be done at its end.

    To take down what is loaded, as an interpreter does at its end, takes torch a third of a second.
    """
    try:
        app()
    except SystemExit as end:
        code = end.code or 0
        if isinstance(code, int) and threading.active_count() == 1:
            with contextlib.suppress(OSError, ValueError):  # nobody reads on: Python says so below
                atexit._run_exitfuncs()
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        raise


if __name__ == "__main__":
    main()
