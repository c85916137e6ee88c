"""The sum of a CI run counts what ran, and refuses a run that tested nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import count_tests

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

JUNIT = """<testsuites><testsuite>
<testcase name="a" status="run"/><testcase name="b"/>
<testcase name="c"><failure message="no"/></testcase>
<testcase name="d"><error message="no"/></testcase>
<testcase name="e"><skipped/></testcase><testcase name="f" status="disabled"/>
</testsuite></testsuites>"""


def test_every_verdict_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "junit.xml"
    file.write_text(JUNIT, encoding="utf-8")
    assert count_tests.main([str(file)]) == 1
    *stories, sum_of_all = capsys.readouterr().out.splitlines()
    assert sum_of_all == "2 passed, 2 failed, 2 skipped"
    assert [line.split()[-1] for line in stories if line.startswith("FAILED")] == ["c", "d"]


def test_a_failed_test_tells_the_end_of_what_it_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = "\n".join(f"line {number}" for number in range(100))
    file = tmp_path / "junit.xml"
    file.write_text(
        f'<testsuite><testcase name="a"><failure message=""/><system-out>{printed}</system-out>'
        "</testcase></testsuite>",
        encoding="utf-8",
    )
    count_tests.main([str(file)])
    out = capsys.readouterr().out
    assert "  line 99" in out
    assert "line 10\n" not in out


def test_a_run_without_failures_succeeds(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    file.write_text('<testsuite><testcase name="a"/></testsuite>', encoding="utf-8")
    assert count_tests.main([str(file)]) == 0


def test_a_missing_or_broken_file_is_a_failure(tmp_path: Path) -> None:
    broken = tmp_path / "broken.xml"
    broken.write_text("<testsuite>", encoding="utf-8")
    assert count_tests.main([str(tmp_path / "missing.xml")]) == 1
    assert count_tests.main([str(broken)]) == 1


def test_a_run_of_no_tests_fails(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    file.write_text("<testsuite/>", encoding="utf-8")
    assert count_tests.main([str(file)]) == 1
