"""Train and measure many systems, on a machine that has only torch and transformers.

python -m experiments run --systems plain,corrected-lexicon --on taxa \
        --data FOLDER --out results --workers 8 --time-limit 540
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.errors import BoolattnError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from boolattn.reproduction.requests import Paths, RunRequest

# The time limit includes the import of torch.
_STARTED = time.monotonic()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Tables go to stdout, everything else to stderr."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    options = _parser().parse_args(arguments)
    options.arguments = arguments
    try:
        text = options.command(options)
    except BoolattnError as error:
        sys.stderr.write(f"experiments: {error}\n")
        return 2
    if text:
        sys.stdout.write(text + "\n")
    return 0


def _run(options: argparse.Namespace) -> str:
    from boolattn.reproduction.execution import run_all
    from experiments.report import overview

    request, paths = _request(options), _paths(options)
    _set_limits(options)
    # Each takes the next run that no other has begun.
    command = [sys.executable, "-m", "experiments", *options.arguments, "--workers", "1"]
    workers = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(options.workers - 1)
    ]
    try:
        run_all(request, paths, _progress)
        for worker in workers:
            worker.wait()
    except KeyboardInterrupt:
        _progress("stopped; the same command goes on")
    finally:
        for worker in workers:
            worker.terminate()
    folders = (paths.runs, *request.done)
    files = [folder / spec.key.path for spec in request.specs() for folder in folders]
    return overview([path for path in files if path.is_file()])


def _set_limits(options: argparse.Namespace) -> None:
    """Set the number of threads, and the time after which the command stops."""
    import torch

    torch.set_num_threads(options.threads)
    if options.time_limit:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        seconds = options.time_limit - (time.monotonic() - _STARTED)
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.1))


def _parser_tests(options: argparse.Namespace) -> str:
    from experiments.parsing.accuracy import measure_tests

    return measure_tests(options.parser)


def _parser_validation(options: argparse.Namespace) -> str:
    from experiments.parsing.accuracy import measure_validation

    queries = parse_pairs(options.queries, ())
    return measure_validation(options.parser, queries, shows_errors=options.errors)


def _report(options: argparse.Namespace) -> str:
    from experiments.report import report

    if options.runs is None and options.results is None:
        raise ConfigError("name the folder of results, or the folder of runs with --runs")
    runs = options.runs or options.results / "runs"
    return f"wrote {report(runs, options.out, tuple(options.against.split(',')))}"


def _request(options: argparse.Namespace) -> RunRequest:
    from boolattn.reproduction.requests import RunRequest
    from boolattn.reproduction.systems import parse_seeds

    datasets = split_names(options.on)
    return RunRequest(
        systems=split_names(options.systems),
        datasets=datasets,
        encoders=split_names(options.encoders),
        seeds=parse_seeds(options.seeds),
        data={name: Path(folder) for name, folder in parse_pairs(options.data, datasets).items()},
        preset=options.preset,
        sources=parse_pairs(options.encoder, ()),
        changes=tuple(options.set),
        done=options.done,
    )


def _paths(options: argparse.Namespace) -> Paths:
    from boolattn.reproduction.requests import Paths

    return Paths(
        runs=options.out / "runs",
        work=options.work or options.out / "work",
        keep_models=options.keep,
        command=_command_line(options.arguments),
    )


def _command_line(arguments: Sequence[str]) -> str:
    """Write the command line with the last names of folders.

    >>> _command_line(["run", "--data", "taxa=/home/somebody/taxa-full", "--seeds", "0"])
    'python -m experiments run --data taxa=taxa-full --seeds 0'
    """
    words = ["python -m experiments"]
    for argument in arguments:
        name, equals, value = argument.rpartition("=")
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


def _progress(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser("run", help="train and measure systems, many at once")
    verb.set_defaults(command=_run)
    _add_run_options(verb)
    verb = verbs.add_parser("report", help="write tables and figures of finished runs")
    verb.set_defaults(command=_report)
    verb.add_argument("results", type=Path, nargs="?", help="folder that holds runs/")
    verb.add_argument("--runs", type=Path, help="folder of finished runs")
    verb.add_argument("--out", type=Path, required=True, help="folder to write to")
    verb.add_argument("--against", default="plain,plain_text", metavar="SYSTEM,QUERY_MODE")
    verb = verbs.add_parser("parsing", help="parse accuracy on names and unseen domains")
    verb.set_defaults(command=_parser_tests)
    verb.add_argument("parser", help='folder of a parser, or "shipped"')
    verb = verbs.add_parser("validation", help="parse accuracy on the queries for model selection")
    verb.set_defaults(command=_parser_validation)
    verb.add_argument("parser", help='folder of a parser, or "shipped"')
    verb.add_argument("--errors", action="store_true", help="print each error")
    verb.add_argument(
        "--queries", action="append", default=[], metavar="NAME=FILE", help="these instead"
    )
    return parser


def _add_run_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--systems", required=True, help="names of systems.toml, by commas")
    verb.add_argument("--on", default="taxa", help="data sets, separated by commas")
    verb.add_argument("--seeds", default="0,42,1234")
    verb.add_argument("--data", action="append", default=[], metavar="[DATASET=]FOLDER")
    verb.add_argument("--preset", default="", help="instead of the data set's and encoder's own")
    verb.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    verb.add_argument("--done", type=Path, action="append", default=[], help="more finished runs")
    verb.add_argument("--encoders", default="minilm", help="names, separated by commas")
    verb.add_argument("--encoder", action="append", default=[], metavar="NAME=FOLDER")
    verb.add_argument("--out", type=Path, required=True, help="folder of finished runs: small")
    verb.add_argument("--work", type=Path, help="folder of large files that can be made again")
    verb.add_argument("--workers", type=int, default=1, help="processes")
    verb.add_argument("--threads", type=int, default=2, help="of each worker")
    verb.add_argument("--time-limit", type=float, default=0, metavar="SECONDS")
    verb.add_argument("--keep", action="store_true", help="keep trained models")


if __name__ == "__main__":
    sys.exit(main())
