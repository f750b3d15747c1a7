"""Reservations and licences, as scontrol prints them."""

from __future__ import annotations

from podwright.slurm.reader._scontrol_records import FieldRecord, records


class ReservationRecord:
    """A reservation. Each property raises FieldNotKnown where Slurm does not show what it needs."""

    __slots__ = ("_record",)

    def __init__(self, field_record: FieldRecord) -> None:
        self._record = field_record

    @property
    def name(self) -> str:
        """Its name."""
        return self._record.text("ReservationName")

    @property
    def licences(self) -> str:
        """The licences that it takes, as Slurm writes them."""
        return self._record.value("Licenses")


class LicenceRecord:
    """A licence. Each property raises FieldNotKnown where Slurm does not show what it needs."""

    __slots__ = ("_record",)

    def __init__(self, field_record: FieldRecord) -> None:
        self._record = field_record

    @property
    def name(self) -> str:
        """Its name."""
        return self._record.text("LicenseName")

    @property
    def total(self) -> int:
        """The total number of this licence."""
        return self._record.number("Total")

    @property
    def used(self) -> int:
        """How many of it jobs have."""
        return self._record.number("Used")


def read_reservations(scontrol_output: str) -> list[ReservationRecord]:
    """Return the reservations in the output of `scontrol --oneliner show reservation`."""
    return [ReservationRecord(record) for record, _ in records(scontrol_output, "ReservationName")]


def read_licences(scontrol_output: str) -> list[LicenceRecord]:
    """Return the licences in the output of `scontrol --oneliner show licenses`."""
    return [LicenceRecord(record) for record, _ in records(scontrol_output, "LicenseName")]
