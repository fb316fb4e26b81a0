"""Many runs at once, on a machine that has only torch and transformers.

    python -m boolattn.reproduction run --systems plain,corrected-lexicon --on taxa \
        --data FOLDER --out results --workers 8 --time-limit 540

May import: boolattn.reproduction, boolattn.errors.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.errors import BoolattnError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.reproduction.places import Places
    from boolattn.reproduction.plan import Wanted
    from boolattn.reproduction.running import Limits

# Importing torch is part of the time that was given.
_BEGUN = time.monotonic()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Tables go to stdout, everything else to stderr."""
    options = _parser().parse_args(argv)
    try:
        text = options.do(options)
    except BoolattnError as error:
        sys.stderr.write(f"boolattn: {error}\n")
        return 2
    if text:
        sys.stdout.write(text + "\n")
    return 0


def _run(options: argparse.Namespace) -> str:
    from boolattn.reproduction.running import run

    return run(_wanted(options), _places(options), _limits(options), tell=_tell)


def _negation(options: argparse.Namespace) -> str:
    from boolattn.reproduction.running import NegationWanted, run_negation
    from boolattn.reproduction.systems import names_of, pairs, seeds_of

    wanted = NegationWanted(
        corpora=names_of(options.on),
        data=options.data,
        encoders=names_of(options.encoders),
        sources=pairs(options.encoder, ()),
        seeds=seeds_of(options.seeds),
        max_steps=options.max_steps,
    )
    return run_negation(wanted, _places(options), _limits(options), tell=_tell)


def _limits(options: argparse.Namespace) -> Limits:
    from boolattn.reproduction.running import Limits

    return Limits(
        n_workers=options.workers,
        n_threads=options.threads,
        deadline=_BEGUN + options.time_limit if options.time_limit else None,
    )


def _places(options: argparse.Namespace) -> Places:
    from boolattn.reproduction.places import Places

    work = options.work or options.out / "work"
    return Places(
        runs=options.out / "runs",
        work=work,
        made=options.made or work / "made",
        keep=options.keep,
        command=_command(sys.argv[1:]),
    )


def _reading(options: argparse.Namespace) -> str:
    from boolattn.reproduction.read import read

    return read(options.model, options.json)


def _report(options: argparse.Namespace) -> str:
    from boolattn.reproduction.report import report

    return f"wrote {report(options.runs, options.out, draw=not options.no_figures)}"


def _list(options: argparse.Namespace) -> str:
    from boolattn.reproduction.plan import plan

    planned = plan(_wanted(options), _places(options))
    lines = [f"done  {key}" for key in planned.finished]
    return "\n".join([*lines, *(f"to do {task.name}" for task in planned.tasks)])


def _wanted(options: argparse.Namespace) -> Wanted:
    from boolattn.reproduction.plan import Wanted
    from boolattn.reproduction.systems import Request, names_of, pairs, seeds_of

    datasets = names_of(options.on)
    return Wanted(
        systems=names_of(options.systems),
        datasets=datasets,
        encoders=names_of(options.encoders),
        seeds=seeds_of(options.seeds),
        data={name: Path(folder) for name, folder in pairs(options.data, datasets).items()},
        request=Request(
            preset=options.preset,
            size=options.size,
            sources=pairs(options.encoder, ()),
            changes=tuple(options.set),
        ),
        done=options.done,
    )


def _command(arguments: Sequence[str]) -> str:
    """Write what was typed, with folders by their last name alone.

    >>> _command(["run", "--data", "taxa=/home/somebody/taxa-full", "--seeds", "0"])
    'python -m boolattn.reproduction run --data taxa=taxa-full --seeds 0'
    """
    parts = []
    for argument in arguments:
        name, equals, value = argument.rpartition("=")
        parts.append(name + equals + (Path(value).name if "/" in value else value))
    return " ".join(["python -m boolattn.reproduction", *parts])


def _tell(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m boolattn.reproduction",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for name, function, words in (
        ("run", _run, "train and measure systems, many at once"),
        ("list", _list, "say what run would do"),
    ):
        verb = verbs.add_parser(name, help=words)
        verb.set_defaults(do=function)
        _add_run_options(verb)
    verb = verbs.add_parser("negation", help="cue and scope F1 on people's annotations")
    verb.set_defaults(do=_negation)
    verb.add_argument("--on", default="cd-sco,sfu", help="corpora, by commas")
    verb.add_argument("--data", type=Path, help="folder of their files")
    verb.add_argument("--seeds", default="0")
    verb.add_argument("--max-steps", type=int, default=0, help="to try it out")
    _add_machine_options(verb)
    verb = verbs.add_parser("report", help="lay out finished runs in tables and figures")
    verb.set_defaults(do=_report)
    verb.add_argument("--runs", type=Path, required=True, help="folder of finished runs")
    verb.add_argument("--out", type=Path, required=True, help="folder of the page")
    verb.add_argument("--no-figures", action="store_true", help="where matplotlib is missing")
    verb = verbs.add_parser("reading", help="say how well a model reads queries nobody here wrote")
    verb.set_defaults(do=_reading)
    verb.add_argument("model", help='folder of a model, or "shipped"')
    verb.add_argument("--json", type=Path, help="file to write everything to")
    return parser


def _add_run_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--systems", required=True, help="names of systems.toml, by commas")
    verb.add_argument("--on", default="taxa", help="data sets, by commas")
    verb.add_argument("--seeds", default="0,42,1234")
    verb.add_argument("--data", action="append", default=[], metavar="[DATASET=]FOLDER")
    verb.add_argument("--preset", default="", help="instead of the data set's and encoder's own")
    verb.add_argument("--size", default="", choices=("", "small", "full"))
    verb.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    verb.add_argument("--done", type=Path, action="append", default=[], help="more finished runs")
    _add_machine_options(verb)


def _add_machine_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--encoders", default="minilm", help="names, by commas")
    verb.add_argument("--encoder", action="append", default=[], metavar="NAME=FOLDER")
    verb.add_argument("--out", type=Path, required=True, help="finished runs: small, kept")
    verb.add_argument("--work", type=Path, help="what is large and can be made again")
    verb.add_argument("--made", type=Path, help="folder of generated sentences")
    verb.add_argument("--workers", type=int, default=1)
    verb.add_argument("--threads", type=int, default=2, help="of each worker")
    verb.add_argument("--time-limit", type=float, default=0, metavar="SECONDS")
    verb.add_argument("--keep", action="store_true", help="keep trained models")


if __name__ == "__main__":
    sys.exit(main())
