"""Runs the official test suite of the array API standard on eagerd, and on plain numpy beside it.

    ARRAY_API_TESTS=FOLDER make conformance                     both versions, 100 examples a test
    ARRAY_API_TESTS=FOLDER make conformance ARGS="--examples 20"

FOLDER is a clone of https://github.com/data-apis/array-api-tests with its submodule. Both sides see the same
examples. A test may fail only where numpy fails through array-api-compat: any other failure ends this with 1.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

VERSIONS = ("2024.12", "2025.12")
HERE = Path(__file__).parent


class Score(NamedTuple):
    """What one run of the suite gave."""

    passed: set[str]
    failed: set[str]
    skipped: set[str]

    def __str__(self) -> str:
        return f"{len(self.passed):,} passed, {len(self.failed):,} failed, {len(self.skipped):,} skipped"


def run_suite(suite: Path, module: str, version: str, examples: int) -> Score:
    """Run the whole suite on a module, and read its report."""
    environment = os.environ | {
        "ARRAY_API_TESTS_MODULE": module,
        "ARRAY_API_TESTS_VERSION": version,
        "PYTHONPATH": str(HERE),
    }
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = ["--derandomize", "--disable-deadline", f"--max-examples={examples}", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", "array_api_tests", "-q", "-W", "ignore", "--tb=short", *options]
        result = subprocess.run([*command, f"--junit-xml={report}"], cwd=suite, env=environment, check=False)
        if result.returncode not in (0, 1):
            raise SystemExit(f"the suite could not run on {module}: pytest ended with {result.returncode}")
        cases = list(ElementTree.parse(report).iter("testcase"))
    score = Score(set(), set(), set())
    for case in cases:
        kinds = {child.tag for child in case}
        into = score.failed if kinds & {"failure", "error"} else score.skipped if "skipped" in kinds else score.passed
        into.add(f"{case.get('classname')}::{case.get('name')}")
    return score


def find_suite() -> Path:
    """Return the suite's folder; leave with a word where there is none."""
    named = os.environ.get("ARRAY_API_TESTS")
    if not named:
        raise SystemExit(
            "ARRAY_API_TESTS must name the folder of the suite:\n"
            "  git clone --recurse-submodules https://github.com/data-apis/array-api-tests\n"
            "  ARRAY_API_TESTS=$PWD/array-api-tests make conformance"
        )
    suite = Path(named).expanduser().resolve()
    for part in ("array_api_tests", "array-api/src/array_api_stubs"):
        if not (suite / part).is_dir():
            raise SystemExit(f"{suite} has no {part}: clone the suite with --recurse-submodules")
    return suite


def main() -> None:
    """Run, print the scores, end with 1 where eagerd fails and numpy does not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=100, metavar="N", help="examples a test (default: 100)")
    parser.add_argument("--version", choices=VERSIONS, action="append", help="only this version of the standard")
    options = parser.parse_args()
    suite = find_suite()
    lines: list[str] = []
    own: set[str] = set()
    for version in options.version or VERSIONS:
        scores = {}
        for module in ("eagerd_namespace", "array_api_compat.numpy"):
            print(f"\n{version} on {module}", flush=True)
            scores[module] = run_suite(suite, module, version, options.examples)
            lines.append(f"{version}  {module:22}  {scores[module]}")
        eagerd, numpy = scores.values()
        lines += [f"         fails on {name}" for name in sorted(eagerd.failed)]
        own |= eagerd.failed - numpy.failed
    print("", *lines, sep="\n")
    if own:
        raise SystemExit(f"{len(own)} tests fail on eagerd and pass on numpy")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
