"""``python -m experiments.translation``."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, NoReturn, cast

import typer

RESULTS = Path(__file__).resolve().parents[1] / "results"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def fail(message: str, *, code: int = 2) -> NoReturn:
    """Print one line to stderr and leave."""
    typer.echo(f"translation: error: {message}", err=True)
    raise typer.Exit(code)


@app.command()
def main(
    setting: Annotated[
        str, typer.Option(help="reduced (one CPU core) or full (a GPU).")
    ] = "reduced",
    out: Annotated[
        Path | None,
        typer.Option(help="JSON file (experiments/results/translation_SETTING.json)."),
    ] = None,
    work: Annotated[Path, typer.Option(help="Folder of the checkpoints.")] = Path(
        "runs/translation"
    ),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    models: Annotated[
        str | None, typer.Option(help="Some of the models, with commas between; default: all.")
    ] = None,
    parallel: Annotated[
        str, typer.Option(help="Under torchrun: ddp (copies of the model) or fsdp (parts of it).")
    ] = "ddp",
    seed: Annotated[int, typer.Option(help="Of parameters and data.", min=0)] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads of torch.", min=1)] = 1,
) -> None:
    """Train and measure all models; Ctrl-C saves, and the same command goes on."""
    for module in ("sentencepiece", "sacrebleu"):
        if find_spec(module) is None:
            fail(f"this needs {module}: pip install -e '.[experiments]'")
    import torch

    from attn_course.data import DataError
    from attn_course.train.parallel import start_parallel
    from experiments.keeping import say
    from experiments.translation.corpus import multi30k
    from experiments.translation.report import print_table
    from experiments.translation.run import run
    from experiments.translation.settings import SETTINGS

    if setting not in SETTINGS:
        fail(f"--setting: expected one of {', '.join(SETTINGS)}, got {setting}")
    chosen = SETTINGS[setting]
    out = RESULTS / f"translation_{setting}.json" if out is None else out
    torch.set_num_threads(threads)
    try:
        with start_parallel(cast(Literal["ddp", "fsdp"], parallel), device=device) as here:
            if here.main:
                say(
                    f"setting {setting}, seed {seed}, {here.world_size} x {here.device}: "
                    f"checkpoints in {work}, results in {out}"
                )
            result = run(
                chosen,
                multi30k(vocab_size=chosen.vocab_size, train_pairs=chosen.train_pairs),
                work=work,
                out=out,
                seed=seed,
                parallel=here,
                models=None if models is None else [each.strip() for each in models.split(",")],
                progress=True,
            )
            speaks = here.main
    except KeyboardInterrupt:
        say("translation: stopped; the same command goes on from here")
        raise typer.Exit(130) from None
    except DataError as error:
        fail(str(error), code=1)
    except (ValueError, FloatingPointError) as error:
        fail(str(error))
    if speaks:
        print_table(result)


if __name__ == "__main__":
    app()
