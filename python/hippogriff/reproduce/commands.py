"""The command line of `hippogriff reproduce`. What it needs is imported when it runs."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from hippogriff._console import print_json
from hippogriff._usage import path_of
from hippogriff.errors import InvalidArgument

Quick = Annotated[
    bool, typer.Option("--quick", help="Everything, tiny: some two minutes, no GPU needed.")
]
Full = Annotated[
    bool, typer.Option("--full", help="The papers' sizes: hours, in slices if you like.")
]
Reports = Annotated[
    list[str] | None,
    typer.Option("--report", metavar="RESULTS", help="Only the report; may be repeated."),
]
Differ = Annotated[
    bool, typer.Option("--builds-differ", help="Let --report take results of several builds.")
]
Names = Annotated[str, typer.Option("--experiments", help="Such as E1,E3.")]
Out = Annotated[str, typer.Option("--out", help="Results, and the report.")]
Files = Annotated[
    str | None, typer.Option("--dir", help="Where large files are made; else in --out.")
]
Device = Annotated[
    str | None, typer.Option("--device", help="cuda:0, host, …; the current GPU if not given.")
]
Programs = Annotated[
    str | None, typer.Option("--programs", help="The folder of the papers' programs.")
]
Budget = Annotated[
    float, typer.Option("--budget-seconds", help="Nothing more is begun after that.")
]
Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Seconds a program may take.")]
Only = Annotated[
    str | None, typer.Option("--only", help="Only these programs: nn,lud; mixed: of E7.")
]
Sizes = Annotated[
    str | None, typer.Option("--sizes", help="Only these: tiny, small, medium, large.")
]
Configurations = Annotated[
    str | None,
    typer.Option("--configurations", help="Only these of E7: drive,direct_most,everything,…"),
]
Repetitions = Annotated[
    int,
    typer.Option(
        "--repetitions",
        min=0,
        max=100,
        help="0: 5, of the best shape by hand 31; of --quick 2, or 1.",
    ),
]
Keep = Annotated[bool, typer.Option("--keep-inputs", help="Leave inputs for the next run.")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Only measure.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")]

_TIMEOUT_SECONDS = 300.0


def _expect_none(options: dict[str, object]) -> None:
    """Refuse options of measuring; one whose value is None or False was not given."""
    given = [option for option, value in options.items() if value not in (None, False)]
    if given:
        raise InvalidArgument(
            f"--report measures nothing and shows all of the results: leave {given[0]} out"
        )


def _draw(report_of: list[str], out: str, *, builds_differ: bool, json: bool) -> None:
    from hippogriff.reproduce.command import write_report

    results = [path_of(each, "--report") for each in report_of]
    page = write_report(results, path_of(out, "--out"), builds_differ=builds_differ)
    if json:
        print_json({"report": str(page)})
    else:
        print(page)


def reproduce(
    quick: Quick = False,
    full: Full = False,
    report_of: Reports = None,
    builds_differ: Differ = False,
    experiments: Names = "all",
    out: Out = "reproduce",
    files: Files = None,
    device: Device = None,
    programs: Programs = None,
    budget_seconds: Budget = math.inf,
    timeout: Timeout = _TIMEOUT_SECONDS,
    only: Only = None,
    sizes: Sizes = None,
    configurations: Configurations = None,
    repetitions: Repetitions = 0,
    keep_inputs: Keep = False,
    no_report: NoReport = False,
    json: Json = False,
) -> None:
    """Run the papers' experiments E1 to E8, and show the papers' figures beside ours.

    What was measured is kept at once: the same command goes on where an interrupted one ended.
    Exit code 1 when a measurement failed.
    """
    from hippogriff.reproduce.command import Options, run
    from hippogriff.reproduce.effort import slice_of

    if report_of:
        _expect_none(
            {
                "--quick": quick,
                "--full": full,
                "--experiments": experiments != "all",
                "--only": only,
                "--sizes": sizes,
                "--configurations": configurations,
                "--repetitions": repetitions != 0,
                "--dir": files,
                "--device": device,
                "--programs": programs,
                "--budget-seconds": budget_seconds != math.inf,
                "--timeout": timeout != _TIMEOUT_SECONDS,
                "--keep-inputs": keep_inputs,
                "--no-report": no_report,
            }
        )
        _draw(report_of, out, builds_differ=builds_differ, json=json)
        return
    if builds_differ:
        raise InvalidArgument("--builds-differ is of --report")
    if quick == full:
        raise InvalidArgument("choose one of --quick and --full, or --report", object="--quick")
    options = Options(
        effort="quick" if quick else "full",
        experiments=experiments,
        out=path_of(out, "--out"),
        files=None if files is None else path_of(files, "--dir"),
        device=device,
        programs=None if programs is None else path_of(programs, "--programs"),
        budget_seconds=budget_seconds,
        timeout_seconds=timeout,
        part=slice_of(only, sizes, repetitions, configurations),
        keep_inputs=keep_inputs,
        report=not no_report,
        json=json,
    )
    if code := run(options):
        raise typer.Exit(code)
