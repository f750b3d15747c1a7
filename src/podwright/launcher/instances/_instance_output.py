"""Reads what the instances of one start write: passes it on with tags, and keeps it if requested.

Beside output and errors, an instance may write a result, and records for the timeline (_exchange).
Instances of this host write into pipes. Output of others comes over the connections to their hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from podwright.launcher.instances._exit_cause import Cause
from podwright.launcher.instances._function_exchange import (
    OUTPUT_STREAMS,
    RESULT_STREAM,
    TRACE_STREAM,
    Results,
    streams,
)
from podwright.launcher.instances._instance_pipes import InstancePipes
from podwright.launcher.instances._logs import Logs, allow_open_files
from podwright.launcher.instances._poprun_output import Output
from podwright.launcher.instances._profile_folders import listed, report_folder
from podwright.launcher.instances._run_folder import RunFolder
from podwright.launcher.instances._tagged_output import Stream, last_lines
from podwright.timeline import OFF, TraceWriter

_STREAM_NUMBERS = streams(returns=True, traces=True)
_RESULT_STREAM_NUMBER, _TRACE_STREAM_NUMBER = (
    _STREAM_NUMBERS[RESULT_STREAM],
    _STREAM_NUMBERS[TRACE_STREAM],
)


class StreamOptions(NamedTuple):
    """Options for the streams of `instances` instances.

    only: the one whose output is passed on; None: all. timestamps: whether each line has the time
    in front. logs: a folder for all output; empty: none.
    """

    instances: int
    only: int | None = None
    timestamps: bool = False
    logs: str = ""


class InstanceOutput:
    """Reads the instances' pipes. handle: readable when an instance of this host has written.

    remote_instances: instances of other hosts. result_files: takes the instances' results, if they
    return any. trace: takes their records. variables: returns those of an instance of this host.
    """

    def __init__(
        self,
        folder: RunFolder,
        options: StreamOptions,
        output: Output,
        *,
        remote_instances: frozenset[int] = frozenset(),
        result_files: Results | None = None,
        trace: TraceWriter = OFF,
        variables: Callable[[int], Mapping[str, str]] = lambda rank: {},
    ) -> None:
        self.trace = trace
        self._output, self._remote_instances, self._results, self._variables = (
            output,
            remote_instances,
            result_files,
            variables,
        )
        self._only = options.only
        self._logs = Logs(options.logs) if options.logs else None
        instance_count = options.instances
        allow_open_files((2 + 2 * bool(self._logs) + trace.on) * instance_count)
        self._report: Callable[[Cause], None] = lambda cause: None
        self._by_instance = [
            [
                Stream(
                    index, "stdout", has_colour=output.out.colour, has_timestamps=options.timestamps
                ),
                Stream(
                    index, "stderr", has_colour=output.err.colour, has_timestamps=options.timestamps
                ),
            ]
            for index in range(instance_count)
        ]
        local_instances = [
            index for index in range(instance_count) if index not in remote_instances
        ]
        stream_numbers = streams(returns=result_files is not None, traces=trace.on)
        self._pipes = InstancePipes(
            folder, local_instances, stream_numbers, self.wrote, self._pass_on_last_line
        )

    def watch(self, report: Callable[[Cause], None]) -> None:
        """Report failures to this function from now on."""
        self._report = report

    @property
    def handle(self) -> int:
        """Readable when an instance of this host has written."""
        return self._pipes.handle

    def read(self) -> None:
        """Read what is ready."""
        self._pipes.read()

    def _pass_on_last_line(self, instance_index: int, stream_number: int) -> None:
        """Pass on the last line of an instance's stream, although no newline ends it."""
        if stream_number < len(OUTPUT_STREAMS):
            self._pass_on_lines(
                instance_index,
                stream_number,
                self._by_instance[instance_index][stream_number].finish(),
            )

    def wrote(self, index: int, number: int, data: bytes) -> None:
        """Take an instance's bytes, from here or another host. number: of the stream."""
        if number == _TRACE_STREAM_NUMBER:
            self.trace.records(index, data)
        elif number == _RESULT_STREAM_NUMBER:
            self._keep_result(index, data)
        else:
            stream = self._by_instance[index][number]
            self._log(stream, data)
            self._pass_on_lines(index, number, stream.feed(data))
            self.trace.instance_wrote(index)

    def _keep_result(self, instance_index: int, data: bytes) -> None:
        try:
            if self._results and data:
                self._results.add(instance_index, data)
        except OSError as error:
            self._report(
                Cause(1, f"the result of instance {instance_index} is lost: {error.strerror}")
            )

    def _pass_on_lines(self, instance_index: int, stream_number: int, lines: bytes) -> None:
        if lines and (self._only is None or instance_index == self._only):
            stream = self._by_instance[instance_index][stream_number]
            sink = self._output.out if stream.name == "stdout" else self._output.err
            sink.add(stream.tagged(lines))

    def _log(self, stream: Stream, data: bytes) -> None:
        if self._logs and data and (problem := self._logs.add(stream.index, stream.name, data)):
            self._output.warn(problem)
            self._logs = None

    def instance_ended(self, index: int, code: int) -> None:
        """Add an instance's remaining records, its report and its end to the timeline."""
        if not self.trace.on:
            return
        self._pipes.read_rest(index, _TRACE_STREAM_NUMBER)
        if index not in self._remote_instances:
            profile_folder = report_folder(self._variables(index), index)
            if profile_folder:
                self.reported(index, profile_folder, *listed(profile_folder))
        self.trace.instance_ended(index, code)

    def reported(self, index: int, folder: str, files: Sequence[Any], more: int) -> None:
        """Take the folder of an instance's profile, and its content."""
        self.trace.report(
            index,
            folder,
            [(str(name), int(file_bytes)) for name, file_bytes in files],
            more,
        )

    def last_words(self, index: int) -> list[bytes]:
        """Return the last lines that an instance wrote."""
        return last_lines(self._by_instance[index])

    def _flush_full_output(self) -> None:
        if self._output.out.full or self._output.err.full:
            self._output.flush()

    def close(self) -> None:
        """Read the rest of all pipes. All writers are gone, so nothing more will come."""
        self._pipes.close(self._flush_full_output, unread=(_TRACE_STREAM_NUMBER,))
        if self._results:
            self._results.close()
        for index in self._remote_instances:
            for number in range(len(OUTPUT_STREAMS)):
                self._pass_on_last_line(index, number)
        if self._logs:
            self._logs.close()
