"""Runs an exec credential plugin once: bounded in time and output.

As in client-go, a plugin inherits the standard error of this process if that is a terminal, and
standard input only if its interactiveMode allows it. Otherwise the end of its standard error
becomes part of the message.

Not here: the meaning of its output (`exec_plugin`), and repeated runs (`exec_credentials`).
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from restow.aio import Clock
from restow.client.errors import CredentialsFailed
from restow.client.exec_plugin import (
    INFO_VARIABLE,
    ExecPlugin,
    InteractiveMode,
    PluginAnswerInvalid,
    PluginCredential,
    command_line,
    plain,
    read_answer,
)

RUN_SECONDS_MAX: Final = 60.0
INTERACTIVE_SECONDS_MAX: Final = 600.0
"""A login in a browser, with a second factor, takes minutes."""
OUTPUT_BYTES_MAX: Final = 1024 * 1024
KILL_SECONDS_MAX: Final = 2.0
"""How long the exit of a killed plugin is awaited."""
LOG_BYTES_KEPT: Final = 2048
"""The end of standard error that is kept for the message."""

_STDOUT: Final = 1


@dataclass(frozen=True, slots=True)
class Terminal:
    """Which standard streams of this process are a terminal."""

    has_input: bool
    has_errors: bool

    @classmethod
    def of_process(cls) -> Terminal:
        return cls(_is_terminal(sys.stdin), _is_terminal(sys.stderr))


class ExecProcess:
    """Runs one plugin, once for each call."""

    def __init__(self, plugin: ExecPlugin, clock: Clock, terminal: Terminal) -> None:
        self._plugin = plugin
        self._clock = clock
        self._terminal = terminal

    async def run(self) -> PluginCredential:
        """Run the plugin; return its credential. Raises CredentialsFailed."""
        plugin = self._plugin
        is_interactive = self._is_interactive()
        program = self._program()
        output = _Output(asyncio.get_running_loop())
        seconds = INTERACTIVE_SECONDS_MAX if is_interactive else RUN_SECONDS_MAX
        try:
            transport = await self._start(program, output, is_interactive=is_interactive)
            try:
                async with self._clock.timeout(seconds):
                    await output.ended
                code = transport.get_returncode()
            finally:
                await self._end(transport, output)
        except TimeoutError:
            raise self._failed(
                f"did not finish within {seconds:.0f} s{_tail(output)}", advice=self._try_advice()
            ) from None
        except FileNotFoundError as error:
            raise self._not_found() from error
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise self._failed(
                f"cannot be run: {why}", advice=f"Check the program {program}"
            ) from error
        if output.is_too_large:
            raise self._failed(
                f"printed more than {OUTPUT_BYTES_MAX} bytes", advice=self._try_advice()
            )
        if code != 0:
            raise self._failed(f"{_ending(code)}{_tail(output)}", advice=self._try_advice())
        try:
            return read_answer(bytes(output.out), api_version=plugin.api_version)
        except PluginAnswerInvalid as error:
            raise self._failed(str(error), advice=self._try_advice()) from error

    async def _start(
        self, program: str, output: _Output, *, is_interactive: bool
    ) -> asyncio.SubprocessTransport:
        environ = {
            **self._plugin.environ,
            INFO_VARIABLE: self._plugin.info(is_interactive=is_interactive),
        }
        transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: output,
            program,
            *self._plugin.arguments,
            stdin=None if is_interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if self._terminal.has_errors else subprocess.PIPE,
            env=environ,
            # Without a terminal, a plugin and its children can be ended together.
            start_new_session=not self._has_terminal(),
        )
        return transport

    async def _end(self, transport: asyncio.SubprocessTransport, output: _Output) -> None:
        """Kill it if it is still running, and close its pipes."""
        try:
            if transport.get_returncode() is None:
                with suppress(ProcessLookupError, PermissionError):
                    if self._has_terminal():
                        transport.kill()
                    else:
                        os.killpg(transport.get_pid(), signal.SIGKILL)
                with suppress(TimeoutError):
                    async with self._clock.timeout(KILL_SECONDS_MAX):
                        await output.exited
        finally:
            transport.close()

    def _has_terminal(self) -> bool:
        return self._terminal.has_input or self._terminal.has_errors

    def _is_interactive(self) -> bool:
        match self._plugin.mode:
            case InteractiveMode.NEVER:
                return False
            case InteractiveMode.IF_AVAILABLE:
                return self._terminal.has_input
            case InteractiveMode.ALWAYS:
                if not self._terminal.has_input:
                    raise self._failed(
                        "needs a terminal (interactiveMode: Always), and standard input is none",
                        advice="Run the command in a terminal, or use a service account",
                    )
                return True

    def _program(self) -> str:
        """The path of the program; as in client-go, PATH never selects the current directory."""
        plugin = self._plugin
        if "/" in plugin.command:
            return plugin.command
        found = shutil.which(plugin.command, path=plugin.search_path)
        if found is None or not Path(found).is_absolute():
            raise self._not_found()
        return found

    def _not_found(self) -> CredentialsFailed:
        hint = plain(self._plugin.install_hint)
        return self._failed("was not found", advice=hint or "Install it, or correct PATH")

    def _try_advice(self) -> str:
        return f"Run it in a shell to see why: {plain(shlex.join(command_line(self._plugin)))}"

    def _failed(self, what: str, *, advice: str) -> CredentialsFailed:
        plugin = self._plugin
        text = f"{plugin.source}: the credential plugin {plain(plugin.command)!r} {what}"
        return CredentialsFailed(plugin.server, text, advice=advice)


class _Output(asyncio.SubprocessProtocol):
    """Collects the output of a process, up to a limit."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ended: asyncio.Future[None] = loop.create_future()
        """Done when the process has exited and closed its output, or has printed too much."""
        self.exited: asyncio.Future[None] = loop.create_future()
        self.out = bytearray()
        self.log = bytearray()
        self.is_too_large = False

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd != _STDOUT:
            self.log += data
            del self.log[:-LOG_BYTES_KEPT]
        elif len(self.out) + len(data) > OUTPUT_BYTES_MAX:
            self.is_too_large = True
            self._end()
        else:
            self.out += data

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by signal {-code}"
    return f"failed with exit code {code}"


def _tail(output: _Output) -> str:
    """The end of its standard error, if that was not a terminal."""
    text = plain(output.log.decode(errors="replace"))
    return f": {text}" if text else ""


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
