"""Hash chains: whether the audit is as it was written. Pure; the audit itself is in `_audit`.

Each entry of a chain carries its position and a hash over its own bytes and the hash before it. So
an entry that was changed, taken out or put in breaks the chain from there on. An entry that was
taken off the end breaks nothing, which is why the head goes to the log each hour: whoever has a
head can ask whether the chain still contains it.

There is one chain for each kind of entry, since each kind is pruned by itself. What pruning takes
is the beginning, and the same commit leaves an anchor: the position and the hash of the last entry
that went. A restore begins a new generation of each chain, anchored in the digest of the backup.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from podwright.controller.state._records import Record
from podwright.errors import InvalidRequest
from podwright.store import Put

ANCHOR_KIND: Final = "audit-anchor"
_HASH_FIELD_START: Final = b',"hash":"'
_EMPTY_SHA256: Final = hashlib.sha256()


class Head(NamedTuple):
    """The last entry of a chain. Its text is `change:1/42:0a1b…`: chain, generation, position."""

    chain: str
    generation: int
    position: int
    digest: str

    def __str__(self) -> str:
        return f"{self.chain}:{self.generation}/{self.position}:{self.digest}"


class AnchorRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Where a generation of a chain begins: behind this position, with this hash before it.

    reason: `pruned`, or which backup was restored. at: seconds since 1970.
    """

    chain: str
    generation: int
    position: int
    digest: str
    reason: str = ""
    at: float = 0.0

    @property
    def put(self) -> Put:
        """The change that stores the anchor."""
        return Put(ANCHOR_KIND, f"{self.chain}/{self.generation}", msgspec.json.encode(self))


class AuditChainPlace(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry says of its place; position 0: it is older than the chains."""

    chain: str = ""
    generation: int = 0
    position: int = 0
    hash: str = ""


class AuditChainEnd:
    """The end of one chain, in memory."""

    def __init__(self, chain_name: str) -> None:
        self.name = chain_name
        self.generation, self.position, self.digest = 1, 0, ""
        self._place_start = self._place_start_of(1)

    @property
    def head(self) -> Head:
        """Its last entry."""
        return Head(self.name, self.generation, self.position, self.digest)

    def go_on(self, generation: int, position: int, digest: str) -> None:
        """It continues behind this place, if that is later than the one that it is at."""
        if (generation, position) >= (self.generation, self.position):
            self.generation, self.position, self.digest = generation, position, digest
            self._place_start = self._place_start_of(generation)

    def seal_entry(self, entry_json: bytes) -> bytes:
        """An entry, a JSON object that is not empty, with its place and its hash."""
        self.position += 1
        hashed_bytes = entry_json[:-1] + self._place_start + b"%d" % self.position
        self.digest = digest = _digest(self.digest, hashed_bytes)
        return hashed_bytes + b',"hash":"%b"}' % digest.encode()

    def _place_start_of(self, generation: int) -> bytes:
        """What stands between an entry and its position."""
        return b',"chain":"%b","generation":%d,"position":' % (self.name.encode(), generation)


class ChainReport(NamedTuple):
    """What a look at one generation of a chain found. anchor: how it begins; empty: at the first
    entry. problems: sentences; empty where all is as it was written."""

    head: Head
    entries: int
    anchor: str
    problems: tuple[str, ...]


def verify_chains(
    records: Mapping[tuple[str, str], bytes], kinds: Iterable[str], heads: Iterable[Head] = ()
) -> list[ChainReport]:
    """A report on each generation of each chain, and whether it contains the heads.

    kinds: of the records that are entries.
    """
    anchors = {}
    for (record_kind, _), record_bytes in records.items():
        if record_kind == ANCHOR_KIND:
            anchor = msgspec.json.decode(record_bytes, type=AnchorRecord)
            anchors[anchor.chain, anchor.generation] = anchor
    entries: dict[tuple[str, int], list[tuple[AuditChainPlace, bytes]]] = {
        chain_generation: [] for chain_generation in anchors
    }
    entry_kinds = set(kinds)
    for (record_kind, _), record_bytes in records.items():
        if record_kind in entry_kinds:
            chain_place = msgspec.json.decode(record_bytes, type=AuditChainPlace)
            if chain_place.position:
                entries.setdefault((chain_place.chain, chain_place.generation), []).append(
                    (chain_place, record_bytes)
                )
    known_heads = list(heads)
    for head in known_heads:
        entries.setdefault((head.chain, head.generation), [])
    return [
        _verify_generation(
            name,
            generation,
            chain_entries,
            anchors.get((name, generation)),
            known_heads,
        )
        for (name, generation), chain_entries in sorted(entries.items())
    ]


def _verify_generation(
    chain_name: str,
    generation: int,
    entries: list[tuple[AuditChainPlace, bytes]],
    anchor: AnchorRecord | None,
    heads: list[Head],
) -> ChainReport:
    position = anchor.position if anchor is not None else 0
    digest = anchor.digest if anchor is not None else ""
    problems: list[str] = []
    digest_by_position = {position: digest}
    for chain_place, record_bytes in sorted(entries, key=lambda entry: entry[0].position):
        if chain_place.position != position + 1:
            missing_text = f"{position + 1}" + (
                f" to {chain_place.position - 1}" if chain_place.position > position + 2 else ""
            )
            problem = (
                f"entry {missing_text} is missing"
                if chain_place.position > position
                else "twice the same"
            )
            problems.append(f"{problem}, before entry {chain_place.position}")
        digest = _digest(
            digest,
            record_bytes[: record_bytes.rindex(_HASH_FIELD_START)]
            if _HASH_FIELD_START in record_bytes
            else record_bytes,
        )
        if digest != chain_place.hash:
            problems.append(
                f"entry {chain_place.position} is not as it was written, or one before it"
            )
            digest = chain_place.hash  # what comes after it is judged by itself
        position = chain_place.position
        digest_by_position[position] = digest
    for head in heads:
        if (head.chain, head.generation) != (chain_name, generation):
            continue
        if head.position > position:
            problems.append(f"it ends at entry {position}, before the head {head}")
        elif (
            head.position in digest_by_position and digest_by_position[head.position] != head.digest
        ):
            problems.append(f"entry {head.position} is another than that of the head {head}")
    return ChainReport(
        Head(chain_name, generation, position, digest),
        len(entries),
        anchor.reason if anchor is not None else "",
        tuple(problems),
    )


def read_head(head_text: str) -> Head:
    """A head from its text. Raises InvalidRequest."""
    try:
        name, place_text, digest = head_text.split(":")
        generation, position = place_text.split("/")
        return Head(name, int(generation), int(position), digest)
    except ValueError:
        raise InvalidRequest(
            f"{head_text[:80]!r} is not the head of an audit chain",
            would_work="give one as the server's log shows it: change:1/42:0a1b…",
        ) from None


def new_generations(
    records: Mapping[tuple[str, str], bytes],
    chain_names: Iterable[str],
    backup_digest: str,
    reason: str,
) -> list[AnchorRecord]:
    """The anchors that a restore of these records writes: one for each chain.

    reason: which backup it is.
    """
    last_generation: dict[str, int] = {}
    for (kind, key), _ in records.items():
        if kind == ANCHOR_KIND:
            chain_name, _, generation = key.rpartition("/")
            last_generation[chain_name] = max(last_generation.get(chain_name, 1), int(generation))
    return [
        AnchorRecord(
            chain=name,
            generation=last_generation.get(name, 1) + 1,
            position=0,
            digest=backup_digest,
            reason=reason,
        )
        for name in chain_names
    ]


def _digest(previous_digest: str, entry_bytes: bytes) -> str:
    hasher = (
        _EMPTY_SHA256.copy()
    )  # half the cost of a new one: OpenSSL looks each new one up by its name
    hasher.update(previous_digest.encode() + entry_bytes)
    return hasher.hexdigest()
