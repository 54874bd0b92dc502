# SPDX-License-Identifier: Apache-2.0
"""Runs every program of expected_counts.toml without a profiler: python3 hard_cases_test.py DIRECTORY_OF_PROGRAMS

What a program does unprobed is what it must do probed, so this must hold before any other test can mean anything.
"""

import pathlib
import subprocess
import sys
import tomllib
import unittest

TIMEOUT_S = 60
programs = pathlib.Path(sys.argv.pop(1)).resolve()


class UnprobedTest(unittest.TestCase):
    def test_every_run_reports_what_is_expected(self) -> None:
        table = tomllib.loads(pathlib.Path(__file__).with_name("expected_counts.toml").read_text())
        for run in table["runs"]:
            program, *arguments = run["command"]
            with self.subTest(command=" ".join(run["command"])):
                process = subprocess.Popen([f"./{program}", *arguments], cwd=programs, text=True,
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                ready = process.stdout.readline()
                output, _ = process.communicate("go\n", timeout=TIMEOUT_S)
                self.assertEqual(ready, f"ready {process.pid}\n")
                self.assertEqual(output, f"done {run['done']}\n")
                self.assertEqual(process.returncode, 0)

    def test_spin_goes_on_until_its_input_ends(self) -> None:
        process = subprocess.Popen(["./hard_case_calls", "spin", "10"], cwd=programs, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), f"ready {process.pid}\n")
        process.stdin.write("go\n")
        process.stdin.flush()
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(timeout=0.2)
        output, _ = process.communicate(timeout=TIMEOUT_S)
        self.assertRegex(output, r"\Aper_call_ns \d+\.\d\ndone checksum=1546747520 different=0\n\Z")
        self.assertEqual(process.returncode, 0)


unittest.main()
