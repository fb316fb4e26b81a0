"""Making the sentences that heads and readers learn from: no torch. May import: boolattn.data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boolattn.data.sentences import Mixture
from boolattn.data.sentences.store import HELD_OUT_SEED, SentenceStore

if TYPE_CHECKING:
    from boolattn.reproduction.jobs import Make
    from boolattn.reproduction.places import Places


def make(job: Make, places: Places) -> str:
    """Make one kind of sentences, where they are not there yet."""
    store, settings = SentenceStore(places.made), job.settings
    if job.what == "triplets":
        store.triplets(settings.n_sentences, settings.seed)
    elif job.what == "sentences":
        store.sentences(settings.n_sentences, settings.seed, Mixture(varied=settings.wide))
    elif job.what == "wide":
        store.sentences(job.n_wide, settings.seed, Mixture(varied=1.0))
    elif settings.n_held_out:
        for unseen in (False, True):
            mixture = Mixture(unseen=unseen)
            store.sentences(settings.n_held_out, settings.seed + HELD_OUT_SEED, mixture)
    return f"{job.what} of seed {settings.seed} are there"
