# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as types."""


class HostrangeError(RuntimeError):
    """Markers were used in an order that has no meaning, or something is missing that was asked for."""


class HostrangeWarning(UserWarning):
    """A figure will be less exact than asked for, or an error could not be raised over another one."""


class ReportError(HostrangeError, ValueError):
    """A report that cannot be read; the message begins with file and line."""
