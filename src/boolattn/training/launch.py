"""One run from a preset: data, model, batches, check, training, all put together.

The command lines call these two functions and nothing else. May import: boolattn.data,
boolattn.encoder, boolattn.plugin, boolattn.training, boolattn.embedding.models, boolattn.errors.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from boolattn.data.catalog import Options, open_dataset
from boolattn.data.sentences.store import SentenceStore
from boolattn.encoder.retriever import Retriever
from boolattn.errors import ConfigError
from boolattn.plugin import attach, save
from boolattn.training.batches import Collator, Steps, Tokens
from boolattn.training.checkpoints import last_checkpoint
from boolattn.training.command import finish_command, pretrain_command, train_command
from boolattn.training.composing import make_composing
from boolattn.training.corpus import Corpus, label_operators
from boolattn.training.cuda_graphs import documents_at_once
from boolattn.training.parser_batches import ComposingCollator, make_store
from boolattn.training.post_training import fit, marked_split, polish, reading_sources, teach
from boolattn.training.pretrain import Pretrainer
from boolattn.training.rankings import read_rankings
from boolattn.training.reading import teach_reading
from boolattn.training.retrieval import Job, Result, release_memory, require_gpu
from boolattn.training.retrieval import train as train_towers
from boolattn.training.run_folder import RunFolder, data_hashes, save_model
from boolattn.training.sampling import Sampler, make_examples
from boolattn.training.towers import hold_heads, load_encoder, make_towers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from boolattn.data.records import Dataset
    from boolattn.training.sampling import Example
    from boolattn.training.settings import Preset

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Where a run reads and writes.

    Attributes:
        out: The run's folder.
        data: Folder of the data set; the data set's own place when not given.
        pretrained: What to begin from: the ``model`` folder of a pretraining, or of a training.
        rankings: Another engine's ranking of the training queries: a TREC run, or JSON.
        made: Folder that keeps generated sentences, for further runs; left out, none does.
        resume: Go on with a run that stopped.
        show_progress: Draw a progress bar.
    """

    out: Path
    data: Path | None = None
    pretrained: Path | None = None
    rankings: Path | None = None
    made: Path | None = None
    resume: bool = False
    show_progress: bool = False


def pretrain(preset: Preset, launch: Launch) -> dict[str, float]:
    """Teach a plug-in its cues, gates and scopes; the encoder is saved with it.

    Returns:
        What the heads can do, on held-out and on unseen wordings.
    """
    require_gpu(preset)
    run = RunFolder(launch.out)
    run.open(
        preset,
        {"name": "sentences"},
        kind="pretrain",
        command=pretrain_command(preset),
        resume=launch.resume,
    )
    torch.manual_seed(preset.pretrain.seed)
    encoder, tokenizer = load_encoder(preset.model.encoder)
    attach(encoder, preset.plugin, tokenizer=tokenizer)
    nn.Module.to(encoder, "cuda" if torch.cuda.is_available() else "cpu")
    trainer = Pretrainer(encoder, tokenizer, preset.pretrain, preset.model.pooling)
    run.rewind(0)
    history: list[dict[str, float]] = []

    def log(step: int, values: dict[str, float]) -> None:
        history.append({"step": step, **values})
        run.log(step, values)
        logger.info("step %d: %s", step, _words(values))

    metrics = trainer.run(log)
    save(encoder.cpu().eval(), run.model, tokenizer=tokenizer)
    run.finish(metrics, history)
    return metrics


def train(preset: Preset, launch: Launch, corpus: Corpus | None = None) -> Result:
    """Train two towers as a preset says.

    Args:
        preset: Every number.
        launch: Where from and where to.
        corpus: The data set, where it has been opened and tokenised already.
    """
    require_gpu(preset)
    has_gate = preset.model.use_plugin and preset.plugin.gate == "learned"
    _check_finish(preset, has_reader=preset.compose.use_reader, has_gate=has_gate)
    torch.manual_seed(preset.train.seed)
    dataset = corpus.dataset if corpus else open_data(preset, launch.data)
    run = RunFolder(launch.out)
    command = train_command(
        preset, data=launch.data, pretrained=launch.pretrained, rankings=launch.rankings
    )
    if is_main_process():
        hashes = data_hashes(dataset)
        run.open(preset, hashes, kind="train", command=command, resume=launch.resume)
    towers = make_towers(preset, launch.pretrained)
    if preset.train.hold_heads:
        hold_heads(towers)
    if corpus is None:
        corpus = Corpus(dataset, towers.tokenizer, preset.model.document_length)
    steps = make_steps(preset, corpus, launch.rankings, SentenceStore(launch.made))
    validate = None
    if preset.data.validation:
        validate = corpus.validator(
            preset,
            preset.data.validation,
            n_queries=preset.train.n_validation_queries,
            n_documents=preset.train.n_validation_documents,
        )
    job = Job(preset, towers, steps, run, validate, show_progress=launch.show_progress)
    job.command = command
    if preset.compose.use_reader:
        job.composing = make_composing(towers, preset, launch.pretrained)
        is_begun = launch.resume and last_checkpoint(run.checkpoints) is not None
        if preset.compose.read_steps and not is_begun:
            collator = cast("ComposingCollator", steps.collator)
            teach_reading(job.composing, collator, preset, _log_reading)
    result = train_towers(job, resume=launch.resume)
    if _is_finished_apart(preset) and is_main_process():
        # What follows loads the model again and keeps much besides.
        del job, towers
        release_memory()
        result.metrics.update(
            _finish(preset, corpus, run.model, run.model, command, SentenceStore(launch.made))
        )
        run.add_to_summary(result.metrics)
    return result


def finish(preset: Preset, launch: Launch, corpus: Corpus | None = None) -> dict[str, float]:
    """Do to a trained model what follows a training: gate, reader and numbers, as far as asked.

    Args:
        preset: Every number.
        launch: ``pretrained`` is the model; the finished one is written below ``out``.
        corpus: The data set, where it has been opened already.
    """
    if launch.pretrained is None:
        raise ConfigError("name the model to finish: --pretrained FOLDER")
    # What the model has is seen when it is loaded.
    _check_finish(preset, has_reader=True, has_gate=True)
    dataset = corpus.dataset if corpus else open_data(preset, launch.data)
    run = RunFolder(launch.out)
    command = finish_command(preset, launch.pretrained, data=launch.data)
    hashes = data_hashes(dataset)
    run.open(preset, hashes, kind="train", command=command, resume=launch.resume)
    if corpus is None:
        _, tokenizer = load_encoder(str(launch.pretrained))
        corpus = Corpus(dataset, tokenizer, preset.model.document_length)
    metrics = _finish(
        preset, corpus, launch.pretrained, run.model, command, SentenceStore(launch.made)
    )
    run.finish(metrics, [])
    return metrics


def _check_finish(preset: Preset, *, has_reader: bool, has_gate: bool) -> None:
    """Refuse before a training what could only fail after it."""
    settings = preset.compose
    if _is_finished_apart(preset) and not has_reader:
        raise ConfigError(
            "compose.polish_steps, gate_steps and fit_numbers need compose.use_reader=true"
        )
    if settings.gate_steps and not has_gate:
        raise ConfigError("compose.gate_steps teaches a learned gate: set plugin.gate=learned")
    if settings.fit_numbers and not preset.data.validation:
        raise ConfigError("compose.fit_numbers needs validation queries: set data.validation")


def _is_finished_apart(preset: Preset) -> bool:
    settings = preset.compose
    return bool(settings.polish_steps or settings.gate_steps or settings.fit_numbers)


def _finish(
    preset: Preset, corpus: Corpus, source: Path, target: Path, command: str, made: SentenceStore
) -> dict[str, float]:
    retriever = Retriever.load(source)
    settings = preset.compose
    metrics: dict[str, float] = {}
    retriever.threshold = settings.threshold
    if retriever.parser is None:
        raise ConfigError(f"{source} has no reader; train one: compose.use_reader=true")
    if settings.polish_steps or settings.gate_steps:
        marked = marked_split(corpus.split(preset.data.train))
        sources = reading_sources(preset, marked, made)
        # The gate first: what it opens changes the states that are read.
        if settings.gate_steps:
            metrics["gate_accuracy"] = teach(retriever, preset, sources)
        if settings.polish_steps:
            polish(retriever, preset, sources, _log_reading)

    def keep() -> None:
        save_model(
            retriever.towers,
            target,
            preset,
            command=command,
            also=retriever.write_files,
        )

    # Choosing takes an hour where a CPU encodes all documents: what was taught is kept first.
    keep()
    if settings.fit_numbers:
        queries = corpus.split(preset.data.validation)
        metrics |= fit(retriever, preset, queries, corpus.documents, corpus.rows)
        logger.info("composition: %s", _words(metrics))
        keep()
    return metrics


def _log_reading(step: int, values: dict[str, float]) -> None:
    logger.info("reading, step %d: %s", step, _words(values))


def is_main_process() -> bool:
    """Whether this process writes and prints; torchrun numbers those it starts."""
    return os.environ.get("RANK", "0") == "0"


def make_steps(
    preset: Preset, corpus: Corpus, rankings: Path | None = None, made: SentenceStore | None = None
) -> Steps:
    """Make the batches of a run."""
    settings = preset.train
    queries = corpus.split(preset.data.train)
    ids = {query.id for query in queries}
    ranked = read_rankings(rankings, ids, corpus.rows) if rankings else None
    examples = make_examples(queries, corpus.rows, ranked)
    if settings.n_bm25 and not any(example.ranked for example in examples):
        raise ConfigError("n_bm25 asks for a ranking's negatives; give the ranking: --rankings")
    sampler = Sampler(examples, len(corpus.documents), settings)
    collator = _collator(preset, corpus, examples, made or SentenceStore())
    # A short run meets few of the documents; a long one nearly all.
    if sampler.n_steps * settings.batch_size * (1 + settings.n_negatives) > len(corpus.documents):
        logger.info("tokenising %d documents", len(corpus.documents))
        corpus.documents.fill()
    return Steps(sampler, collator)


def _collator(
    preset: Preset, corpus: Corpus, examples: Sequence[Example], made: SentenceStore
) -> Collator:
    settings = preset.train
    texts = [example.text for example in examples]
    places = {example.id: place for place, example in enumerate(examples)}
    if not preset.compose.use_reader:
        return Collator(
            Tokens(corpus.tokenizer, texts, preset.model.query_length),
            places,
            corpus.documents,
            chunk=documents_at_once(settings),
            use_in_batch=settings.use_in_batch,
            operators=label_operators(preset),
        )
    marked = marked_split(corpus.split(preset.data.train))
    sources = reading_sources(preset, marked, made)
    return ComposingCollator(
        places,
        corpus.documents,
        make_store(corpus.tokenizer, texts, marked, sources, preset),
        preset=preset,
        tokenizer=corpus.tokenizer,
        operators=label_operators(preset),
    )


def open_data(preset: Preset, folder: Path | None) -> Dataset:
    """Open a preset's data set."""
    options = Options(folder=folder, size=preset.data.size, tell=logger.info)
    return open_dataset(preset.data.name, options)


def plain(preset: Preset) -> Preset:
    """Return the same preset without the plug-in."""
    return replace(preset, model=replace(preset.model, use_plugin=False))


def _words(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in values.items())
