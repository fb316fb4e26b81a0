"""Train and measure many systems, on a machine that has only torch and transformers.

python -m experiments run --systems plain,corrected-lexicon --on taxa \
        --data FOLDER --out results

The same command may run several times at once: each takes the next run that no other has begun.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import argument, option

from boolattn.errors import BoolattnError, ConfigError

if TYPE_CHECKING:
    from boolattn.reproduction.requests import RunRequest


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Tables go to stdout, everything else to stderr."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        text = app(words, prog_name="python -m experiments", obj=words, standalone_mode=False)
    except (BoolattnError, click.ClickException) as error:
        line = error.format_message() if isinstance(error, click.ClickException) else error
        click.echo(f"experiments: {line}", err=True)
        return 2
    if text:
        click.echo(text)
    return 0


@click.group(help=f"\b\n{__doc__}", context_settings={"show_default": True})
def app() -> None:
    """See the module."""


@app.command()
@option("--systems", required=True, help="names of systems.toml, by commas")
@option("--on", default="taxa", help="data sets, separated by commas")
@option("--seeds", default="0,42,1234")
@option("--data", multiple=True, metavar="[DATASET=]FOLDER")
@option("--preset", default="", help="instead of the data set's and encoder's own")
@option("--set", "changes", multiple=True, metavar="KEY=VALUE")
@option("--done", type=Path, multiple=True, help="more finished runs")
@option("--encoders", default="minilm", help="names, separated by commas")
@option("--encoder", multiple=True, metavar="NAME=FOLDER")
@option("--out", type=Path, required=True, help="folder of finished runs: small")
@option("--work", type=Path, help="folder of large files that can be made again")
@option("--threads", default=2, help="CPU threads")
@option("--keep", is_flag=True, help="keep trained models")
@click.pass_obj
def run(words: list[str], /, **options: Any) -> str:
    """Train and measure systems; a command that was stopped goes on."""
    import torch

    from boolattn.reproduction.reproduce import run_all
    from boolattn.reproduction.requests import Paths
    from experiments.report import overview

    request, out = request_of(options), options["out"]
    work = options["work"] or out / "work"
    command = _command_line(words)
    paths = Paths(runs=out / "runs", work=work, keep_models=options["keep"], command=command)
    torch.set_num_threads(options["threads"])
    run_all(request, paths, partial(click.echo, err=True))
    folders = (paths.runs, *request.done)
    files = [folder / run.key.path for run in request.runs() for folder in folders]
    return overview([path for path in files if path.is_file()])


@app.command()
@argument("results", type=Path)
@option("--out", type=Path, required=True, help="folder to write to")
@option("--against", default="plain,plain_text", metavar="SYSTEM,QUERY_MODE")
def report(results: Path, out: Path, against: str) -> str:
    """Write tables of the finished runs in RESULTS/runs."""
    from experiments.report import report as write_report

    return f"wrote {write_report(results / 'runs', out, tuple(against.split(',')))}"


@app.command()
@argument("parser")
def parsing(parser: str) -> str:
    """Print the parse accuracy on names and unseen domains."""
    from experiments.parsing.accuracy import measure_tests

    return measure_tests(parser)


@app.command()
@argument("parser")
@option("--errors", is_flag=True, help="print each error")
@option("--queries", multiple=True, metavar="NAME=FILE", help="these instead")
def validation(parser: str, errors: bool, queries: tuple[str, ...]) -> str:
    """Print the parse accuracy on the queries for model selection."""
    from experiments.parsing.accuracy import measure_validation

    return measure_validation(parser, parse_pairs(queries, ()), shows_errors=errors)


def request_of(options: Mapping[str, Any]) -> RunRequest:
    """Return the runs that the options of ``run`` name."""
    from boolattn.reproduction.requests import RunRequest
    from boolattn.reproduction.runs import parse_seeds

    datasets = split_names(options["on"])
    folders = parse_pairs(options["data"], datasets)
    return RunRequest(
        systems=split_names(options["systems"]),
        datasets=datasets,
        encoders=split_names(options["encoders"]),
        seeds=parse_seeds(options["seeds"]),
        data={name: Path(folder) for name, folder in folders.items()},
        sources=parse_pairs(options["encoder"], ()),
        **{name: options[name] for name in ("preset", "changes", "done")},
    )


def _command_line(arguments: Sequence[str]) -> str:
    """Write the command line with the last names of folders.

    >>> _command_line(["run", "--data", "taxa=/home/somebody/taxa-full", "--seeds", "0"])
    'python -m experiments run --data taxa=taxa-full --seeds 0'
    """
    words = ["python -m experiments"]
    for word in arguments:
        name, equals, value = word.rpartition("=")
        words.append(name + equals + (Path(value).name if "/" in value else value))
    return " ".join(words)


def split_names(text: str) -> list[str]:
    """Split names at commas, without repeats.

    >>> split_names("plain, light,plain")
    ['plain', 'light']
    """
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def parse_pairs(texts: Sequence[str], names: Sequence[str]) -> Mapping[str, str]:
    """Parse NAME=VALUE; a value alone belongs to the only name there is."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals and len(names) != 1:
            raise ConfigError(f"{text!r} names no owner; write NAME={text}")
        pairs[name if equals else names[0]] = value if equals else text
    return pairs


if __name__ == "__main__":
    sys.exit(main())
