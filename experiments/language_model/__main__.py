"""``python -m experiments.language_model``."""

from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, cast

import typer

RESULTS = Path(__file__).resolve().parents[1] / "results"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def fail(message: str, *, code: int = 2) -> NoReturn:
    """Print one line to stderr and leave."""
    typer.echo(f"language_model: error: {message}", err=True)
    raise typer.Exit(code)


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [each.strip() for each in text.split(",")]


@app.command()
def main(
    setting: Annotated[
        str, typer.Option(help="reduced, passes or longer (one CPU core), or full (a GPU).")
    ] = "reduced",
    out: Annotated[
        Path | None,
        typer.Option(help="JSON file (experiments/results/language_model…json by the setting)."),
    ] = None,
    work: Annotated[Path, typer.Option(help="Folder of the checkpoints.")] = Path(
        "runs/language_model"
    ),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    models: Annotated[
        str | None, typer.Option(help="Some of the models, with commas between; default: all.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Some of the setting's seeds, with commas; default: all.")
    ] = None,
    parallel: Annotated[
        str, typer.Option(help="Under torchrun: ddp (copies of the model) or fsdp (parts of it).")
    ] = "ddp",
    threads: Annotated[int, typer.Option(help="CPU threads of torch.", min=1)] = 1,
) -> None:
    """Train and measure all models; Ctrl-C saves, and the same command goes on."""
    import torch

    from attn_course.data import DataError
    from attn_course.train.parallel import start_parallel
    from experiments.keeping import say
    from experiments.language_model.corpus import shakespeare
    from experiments.language_model.run import run
    from experiments.language_model.settings import SETTINGS

    if setting not in SETTINGS:
        fail(f"--setting: expected one of {', '.join(SETTINGS)}, got {setting}")
    numbers = _listed(seeds)
    if numbers is not None and not all(each.isdigit() for each in numbers):
        fail(f"--seeds: expected numbers with commas between, got {seeds}")
    name = "language_model" if setting == "reduced" else f"language_model_{setting}"
    out = RESULTS / f"{name}.json" if out is None else out
    torch.set_num_threads(threads)
    result: dict[str, Any] = {}
    try:
        with start_parallel(cast(Literal["ddp", "fsdp"], parallel), device=device) as here:
            if here.main:
                say(
                    f"setting {setting}, {here.world_size} x {here.device}: "
                    f"checkpoints in {work}, results in {out}"
                )
            result = run(
                SETTINGS[setting],
                shakespeare(),
                work=work,
                out=out,
                parallel=here,
                models=_listed(models),
                seeds=None if numbers is None else [int(each) for each in numbers],
                progress=True,
            )
            speaks = here.main
    except KeyboardInterrupt:
        say("language_model: stopped; the same command goes on from here")
        raise typer.Exit(130) from None
    except DataError as error:
        fail(str(error), code=1)
    except (ValueError, FloatingPointError) as error:
        fail(str(error))
    if speaks:
        for each in result["ngrams"]:
            say(f"{each['order']}-gram{'':12}{each['bits']:.3f} bits per character")
        for model, entry in result["models"].items():
            say(f"{model:18}{entry['median_bits']:.3f} bits per character, seeds {entry['bits']}")


if __name__ == "__main__":
    app()
