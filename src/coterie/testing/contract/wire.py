"""What travels: nothing private, and as many bytes as the ledger says."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithm import Algorithm, Client, Message
from coterie.testing.contract.compare import same
from coterie.testing.contract.plain import exchanges
from coterie.testing.contract.runs import ROUNDS, Watched, federated, trained
from coterie.wire import codec


@federated
def nothing_private_is_uploaded(algorithm: Algorithm) -> None:
    """No number of the private state stands in an upload.

    Checked on real uploads, for all fields but those that the algorithm declares to share: a field of `Private` may
    not be a field of `Upload` unless it is an item table; and of no private leaf, before training, after it, or as the
    change between, may the numbers (up to their sign) be found in the upload. This finds what is sent by accident: a
    bias or a user vector, whole, as a difference or inside a longer vector. It cannot show that an upload reveals
    nothing: a gradient depends on private numbers without containing one. A centralised algorithm uploads nothing.
    """
    name, declared = algorithm.info.name, dict.fromkeys(algorithm.info.shares)
    for client, _, upload, before, after in exchanges(algorithm):
        before, after = before._replace(**declared), after._replace(**declared)
        shared = set(before._fields) & set(upload._fields) - {*algorithm.info.item_tables, *declared}
        assert not shared, f"{name}: {', '.join(sorted(shared))} is a field of both Private and Upload."
        change = jax.tree.map(jnp.subtract, after, before)
        for kind, state in {"": before, "the trained ": after, "the change of ": change}.items():
            for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
                what = f"{kind}Private{jax.tree_util.keystr(path)}"
                assert not _contains(upload, leaf), f"{name}: {what} of client {client} stands in its Upload."


def _contains(message: Message, leaf: Any) -> bool:
    """Whether most numbers of a leaf stand somewhere in a message; 0 and 1 are no evidence."""
    inside = np.concatenate([np.zeros(0), *(np.abs(np.ravel(part)) for part in jax.tree.leaves(message))])
    numbers = np.unique(np.abs(np.ravel(leaf)))
    numbers = numbers[(numbers != 0) & (numbers != 1)]
    return bool(len(numbers)) and bool(np.isin(numbers, inside).mean() > 0.5)


def ledger_counts_serialised_bytes(algorithm: Algorithm) -> None:
    """Bytes in the ledger are those of real messages as they are encoded; decoding gives the message back.

    In a round, everybody downloads and who has data uploads. A centralised algorithm sends nothing.
    """
    run, name = trained(algorithm), algorithm.info.name
    ledger = run.ledger
    if algorithm.central:
        assert ledger.up == ledger.down == 0, f"{name}: a centralised algorithm sends nothing."
        return
    sent = exchanges(algorithm)
    for _, download, upload, _, _ in sent:
        _is_counted(f"{name}: a download", download, ledger.bytes_per_download)
        _is_counted(f"{name}: an upload", upload, ledger.bytes_per_upload)
    if algorithm.answer:
        answer = algorithm.answer(run.config, run.state.server, Client(0, 1))
        small = answer._replace(**{field: None for field, _ in algorithm.info.only_if})
        _is_counted(f"{name}: an answer", answer, ledger.bytes_per_answer + sum(ledger.bytes_if.values()))
        _is_counted(f"{name}: an answer without what only some get", small, ledger.bytes_per_answer)
    bytes_are_counted(run, ledger.down, ledger.up, ROUNDS * run.plan.n_clients, ROUNDS * len(sent))


def bytes_are_counted(run: Watched, down: int, up: int, downloads: int, uploads: int) -> None:
    """Compare counted bytes with the number of messages; who uploads is answered, if there are answers.

    How many answers have the fields that only some have is not known here, so `down` has a least and a most.
    """
    name, ledger = run.algorithm.info.name, run.ledger
    least = downloads * ledger.bytes_per_download + uploads * ledger.bytes_per_answer
    most = least + uploads * sum(ledger.bytes_if.values())
    assert least <= down <= most, f"{name}: the ledger miscounts downloads."
    assert up == uploads * ledger.bytes_per_upload, f"{name}: the ledger miscounts uploads."


def _is_counted(what: str, message: Message, counted: int) -> None:
    payload = codec.encode(message)
    assert len(payload) == counted, f"{what} has {len(payload)} bytes, the ledger counts {counted}."
    same(f"{what} is not what it was after decoding", message, codec.decode(payload, message))
