# SPDX-License-Identifier: Apache-2.0
"""Where HOSTRANGE_RECORD names a folder, every Python process (xdist's workers too) writes its markers to a file there.

The interpreter imports this before anything else. A line is written at once, so that crashed processes have theirs.
"""

import json
import os
import sys

folder = os.environ.get("HOSTRANGE_RECORD")
if folder:
    from recorded_markers import RecordedMarkers

    def write(event):
        with open(os.path.join(folder, f"{os.getpid()}.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    listeners = os.environ.get("HOSTRANGE_RECORD_LISTENERS", "all")
    is_worker = "-c" in sys.orig_argv if hasattr(sys, "orig_argv") else False
    sys.modules["hostrange._markers"] = RecordedMarkers(
        write, profiled=listeners == "all" or (listeners == "controller" and not is_worker)
    )
