"""The command line as it is used wrongly, interrupted or cut off; what commands compute is tested with them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from typer import BadParameter
from typer.testing import CliRunner

from nmt import __version__, cli, failures
from nmt.cli.loading import Chosen
from nmt.cli.options import SearchOptions, refuse_overwriting, search_settings
from nmt.console import ConsoleReporter, write_translations
from nmt.errors import NmtError
from nmt.run_dir import RunDir
from nmt.translate import Candidate, Translation

COMMANDS = ("train", "prepare", "translate", "eval", "align", "attention", "serve", "info")


def run(*args: str) -> Any:
    return CliRunner().invoke(cli.app, list(args))


def nmt(*args: str, cwd: Path | None = None, stdin: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nmt", *args]
    # The package of this checkout, wherever the command runs.
    env = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    return subprocess.run(
        command, cwd=cwd, input=stdin, env=env, capture_output=True, text=True, timeout=60, check=False, **options
    )


# --- help -----------------------------------------------------------------------------------------------------------


def test_version_is_that_of_the_package() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"nmt {__version__}\n")


def test_help_lists_the_commands() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for command in COMMANDS:
        assert re.search(rf"^  {command}  +\S", result.stdout, re.MULTILINE)
    summaries = result.stdout.partition("Commands:")[2]
    assert "..." not in summaries, "a command's summary is cut off"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_shows_examples_that_start_with_it(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert re.search(rf"^  (.*\| )?nmt {command}\b", result.stdout, re.MULTILINE)


def test_help_is_given_whatever_stands_beside_it() -> None:
    result = run("eval", "--run", "a", "--run", "b", "--help")
    assert (result.exit_code, result.stdout) == (0, run("eval", "--help").stdout)


LIGHT = [
    ["--help"],
    ["--version"],
    ["translate", "--help"],
    ["eval", "--no-such-option"],
    ["serve", "--help"],
    ["attention", "--output", "none/a.html", "Hello."],
]


@pytest.mark.parametrize("args", LIGHT)
def test_what_needs_no_model_loads_no_heavy_package(args: list[str]) -> None:
    heavy = {"torch", "datasets", "sacrebleu", "matplotlib", "sentencepiece", "pyarrow", "pandas", "numpy", "fastapi"}
    code = (
        "import sys\n"
        "from nmt.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        f"except SystemExit:\n    print('loaded:', sorted(sys.modules.keys() & {heavy}), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60, check=False)
    assert "loaded: []" in done.stderr


# --- usage errors: 2 ------------------------------------------------------------------------------------------------

USAGE = {
    "no such command": (["trian"], "trian"),
    "no such option": (["eval", "--splt", "dev"], "--splt"),
    "no config": (["train"], "--config"),
    "prepare without config": (["prepare"], "--config"),
    "text and file": (["translate", "Hello.", "--input", "a.en"], "not both"),
    "n-best as text": (["translate", "--n-best", "2", "--format", "text"], "use tsv or jsonl"),
    "n-best beyond the beam": (["translate", "--n-best", "5", "--beam", "4"], "--beam 5"),
    "beam of zero": (["translate", "--beam", "0"], "--beam"),
    "beam that is no number": (["translate", "--beam", "five"], "--beam"),
    "format": (["translate", "--format", "xml"], "xml"),
    "device": (["translate", "--device", "gpu"], "'gpu' is not one of auto, cpu, cuda"),
    "src without tgt": (["eval", "--src", "a.en"], "go together"),
    "no length penalty": (["eval", "--length-penalty", "inf"], "--length-penalty"),
    "output over the input": (["translate", "--input", "a.en", "--output", "./a.en"], "is the file of --input"),
    "page over the input": (["attention", "--input", "a.html", "--output", "a.html"], "is the file of --input"),
    "page over the targets": (["attention", "--tgt", "b/../a.html", "--output", "a.html"], "is the file of --tgt"),
    "page without a name": (["attention", "--output", ".html", "Hello."], "no name before the suffix"),
    "split and files": (["eval", "--split", "dev", "--src", "a", "--tgt", "b"], "either --split or"),
}


@pytest.mark.parametrize(("args", "part"), USAGE.values(), ids=USAGE)
def test_a_usage_error_ends_with_2_and_names_the_word(args: list[str], part: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert part in result.stderr
    assert result.stdout == ""


def test_no_output_may_be_an_input_or_another_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").touch()
    Path("link").symlink_to("a")
    null = Path("/dev/null")
    refuse_overwriting(
        {"--one": Path("b"), "--two": null, "--three": null, "--four": None}, {"--in": null, "--b": None}
    )
    for outputs in ({"--out": Path("link")}, {"--out": tmp_path / "a"}):
        with pytest.raises(BadParameter, match="is the file of --in too"):
            refuse_overwriting(outputs, {"--in": Path("a"), "--other": Path("b")})
    with pytest.raises(BadParameter, match="is the file of --one too"):
        refuse_overwriting({"--one": Path("new"), "--two": Path("./new")}, {})


# --- what the user can mend: 1 --------------------------------------------------------------------------------------

MENDABLE = {
    "no such config": (["train", "--config", "none.yaml"], "none.yaml: there is no such file"),
    "unknown key": (
        ["train", "--config", "bahdanau.yaml", "--set", "training.lerning_rate=1"],
        "did you mean training.optimizer.learning_rate?",
    ),
    "score of bahdanau": (["prepare", "--config", "bahdanau.yaml", "--set", "model.decoder.score=dot"], "`concat`"),
    "no such run": (["translate", "--run", "none", "Hello."], "none: there is no such run"),
    "no run at all": (["translate", "Hello."], "runs: there is no run here"),
    "eval without a run": (["eval"], "runs: there is no run here"),
    "info without a run": (["info", "--run", "none"], "none: there is no such run"),
    "no folder of the page": (
        ["attention", "--output", "none/a.html", "Hello."],
        "none/a.html: cannot be written: No such file or directory",
    ),
    "resume without a run": (["train", "--resume"], "runs: there is no run here"),
}


@pytest.mark.parametrize(("args", "part"), MENDABLE.values(), ids=MENDABLE)
def test_a_mistake_ends_with_1_and_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*args)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert part in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


@pytest.mark.parametrize("command", [["translate", "Hello."], ["eval"]])
def test_a_length_penalty_that_is_no_number_is_refused(tmp_path: Path, command: list[str]) -> None:
    opened = RunDir.create(tmp_path / "a")
    opened.config.write_text("data: {src_lang: en, tgt_lang: de, train: {tsv: a}, dev: {tsv: a}}\n")
    result = run(*command, "--run", str(opened.path), "--length-penalty", "nan")
    assert result.exit_code in (1, 2)  # some versions of Click find nan in no range, others in every one
    assert re.search(r"error: search\.length_penalty: must be a finite|Invalid value for '--length", result.stderr)


@pytest.mark.parametrize(
    ("args", "folder"), [([], "runs"), (["--run-dir", "sub/a"], "sub"), (["--run-dir", "."], "..")]
)
def test_data_is_prepared_beside_the_run_that_is_to_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], folder: str
) -> None:
    roots = []
    monkeypatch.setattr("nmt.prepare.prepare", lambda config, cache_root, reporter: roots.append(cache_root))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert run("prepare", "--config", "bahdanau.yaml", *args).exit_code == 0
    assert roots == [(tmp_path / "here" / folder).resolve() / ".nmt-cache"]


def test_an_existing_run_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "bahdanau"
    folder.mkdir(parents=True)
    (folder / "config.yaml").touch()
    result = run("train", "--config", "bahdanau.yaml")
    assert result.exit_code == 1
    assert "runs/bahdanau: there is a run here already" in result.stderr
    assert "--resume" in result.stderr
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["bahdanau"]


# --- failures, signals, closed pipes --------------------------------------------------------------------------------


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> Any:
    """Run `nmt info` with a failure inside."""

    def fail(path: Path | None) -> Any:
        raise error

    monkeypatch.setattr("nmt.cli.inspecting.open_run", fail)
    return run("info")


def test_several_problems_are_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    result = failing(monkeypatch, NmtError("a: first\nb: second"))
    assert (result.exit_code, result.stderr) == (1, "error: a: first\nb: second\n")


def test_a_defect_keeps_its_traceback_and_says_where_to_report_it(monkeypatch: pytest.MonkeyPatch) -> None:
    result = failing(monkeypatch, KeyError("gone"))
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "KeyError: 'gone'" in result.stderr
    assert result.stderr.rstrip().endswith(failures.REPORT)


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    result = failing(monkeypatch, KeyboardInterrupt())
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (MemoryError(), "error: out of memory. Use smaller batches"),
        (PermissionError(13, "Permission denied", "a.txt"), "error: a.txt: Permission denied."),
        (OSError(28, "No space left on device"), "error: No space left on device."),
    ],
)
def test_what_the_machine_lacks_is_not_a_defect(monkeypatch: pytest.MonkeyPatch, error: Exception, part: str) -> None:
    result = failing(monkeypatch, error)
    assert result.exit_code == 1
    assert part in result.stderr
    assert "Traceback" not in result.stderr


SLOW = """
import signal, sys, time
from nmt import cli

def wait(path):
    print("waiting", flush=True)
    time.sleep(30)

cli.inspecting.open_run = wait
cli.main(["info"])
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_its_code_and_without_a_traceback(number: signal.Signals, code: int) -> None:
    with subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        process.send_signal(number)
        _, stderr = process.communicate(timeout=20)
    assert process.returncode == code
    assert b"Traceback" not in stderr


WORDY = """
from nmt import cli

def talk(path):
    for _ in range(100000):
        print("a line that nobody reads")

cli.inspecting.open_run = talk
cli.main(["info"])
"""


def test_a_closed_pipe_ends_quietly() -> None:
    with subprocess.Popen([sys.executable, "-c", WORDY], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=20) == 0


def test_a_pipe_that_breaks_elsewhere_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    result = failing(monkeypatch, BrokenPipeError(32, "Broken pipe"))
    assert (result.exit_code, result.stderr) == (1, "error: a program that read what nmt writes has ended.\n")


BUSY = """
from nmt import cli
from nmt.console import ConsoleReporter
from nmt.errors import NmtError

def work(path):
    with ConsoleReporter() as reporter:
        for step in range(1000):
            reporter.info(f"step {step}")
            reporter.progress("train", step, 1000)
        reporter.warning("last")
    print("the result", flush=True)
    raise NmtError("the end")

cli.inspecting.open_run = work
cli.main(["info"])
"""


def test_work_goes_on_when_nobody_reads_its_progress() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == b"step 0\n"
        process.stderr.close()
        assert process.stdout.read() == b"the result\n"
        assert process.wait(timeout=20) == 1


def test_work_goes_on_to_its_results_when_nobody_reads_either() -> None:
    command = BUSY.replace('print("the result", flush=True)', 'open("done", "w").close()')
    read, write = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        with subprocess.Popen([sys.executable, "-c", command], stdout=write, stderr=write, cwd=folder) as process:
            os.close(write)
            os.read(read, 1)
            os.close(read)
            assert process.wait(timeout=20) == 1
        assert os.listdir(folder) == ["done"]


@pytest.mark.skipif(not Path("/bin/sh").exists(), reason="needs a shell")
def test_with_stderr_closed_from_the_start_messages_do_not_go_to_stdout() -> None:
    shell = ["/bin/sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, BUSY]
    done = subprocess.run(shell, capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (1, b"the result\n")


def test_python_dash_m_is_the_command() -> None:
    done = nmt("--version")
    assert (done.returncode, done.stdout) == (0, f"nmt {__version__}\n")


# --- how translations are written -----------------------------------------------------------------------------------


def translation(*candidates: tuple[str, float], truncated: bool = False) -> Any:
    """A translation of one word by the given ones, each word of which has looked at it; "" is that of a blank line."""
    entries = tuple(_candidate(text, score) for text, score in candidates)
    words = (0,) if entries[0].words else ()
    return Translation(entries, tuple("▁x" for _ in words), truncated, words)


def _candidate(text: str, score: float) -> Candidate:
    words = tuple(range(len(text.split())))
    weights = np.tile([[0.75, 0.25]], (len(words) + 1, 1)) if words else None
    return Candidate(text, tuple(text.split()), score, score, False, weights, words)


TWO = [[translation(("Ja.", -0.5), ("Doch.", -1.25))], [translation(("", 0.0)), translation(("Nein.", -2.0))]]


@pytest.mark.parametrize(
    ("form", "n_best", "lines"),
    [
        ("text", 1, ["Ja.", "", "Nein."]),
        ("tsv", 1, ["-0.5000\tJa.\t0-0", "0.0000\t\t", "-2.0000\tNein.\t0-0"]),
        (
            "tsv",
            2,
            ["1\t1\t-0.5000\tJa.\t0-0", "1\t2\t-1.2500\tDoch.\t0-0", "2\t1\t0.0000\t\t", "3\t1\t-2.0000\tNein.\t0-0"],
        ),
    ],
)
def test_translations_are_written_in_order_one_a_line(form: str, n_best: int, lines: list[str]) -> None:
    out = BytesIO()
    write_translations(cast(Any, TWO), out, form, n_best, 0, None)
    assert out.getvalue().decode() == "".join(f"{line}\n" for line in lines)


def test_a_tab_in_a_translation_makes_no_field() -> None:
    tabs = cast(Any, [[translation(("a\tb", -1.0))]])
    written = {}
    for form, n_best in (("text", 1), ("tsv", 1), ("tsv", 2), ("jsonl", 1)):
        out = BytesIO()
        write_translations(tabs, out, form, n_best, 0, None)
        written[form, n_best] = out.getvalue().decode()
    assert written["text", 1] == "a\tb\n"
    assert written["tsv", 1] == "-1.0000\ta b\t0-0 0-1\n"
    assert written["tsv", 2] == "1\t1\t-1.0000\ta b\t0-0 0-1\n"
    assert json.loads(written["jsonl", 1])["text"] == "a\tb"


def test_jsonl_has_an_object_a_line() -> None:
    out = BytesIO()
    write_translations(cast(Any, TWO), out, "jsonl", 2, 0, None)
    entries = [json.loads(line) for line in out.getvalue().decode().splitlines()]
    assert [entry["line"] for entry in entries] == [1, 2, 3]
    assert entries[0] == {
        "line": 1,
        "text": "Ja.",
        "score": -0.5,
        "alignment": [[0, 0]],
        "n_best": [
            {"text": "Ja.", "score": -0.5, "alignment": [[0, 0]]},
            {"text": "Doch.", "score": -1.25, "alignment": [[0, 0]]},
        ],
    }


def test_each_block_is_flushed_before_the_next_is_asked_for() -> None:
    class Out(BytesIO):
        flushed = b""

        def flush(self) -> None:
            self.flushed = self.getvalue()

    out, seen = Out(), []

    def blocks() -> Any:
        for word in ("eins", "zwei"):
            seen.append(out.flushed.decode())
            yield [translation((word, 0.0))]

    write_translations(blocks(), out, "text", 1, 0, None)
    assert seen == ["", "eins\n"]


def test_cut_sources_are_counted() -> None:
    blocks = [[translation(("a", 0.0), truncated=True), translation(("b", 0.0))]]
    assert write_translations(cast(Any, blocks), BytesIO(), "text", 1, 0, None) == 1


# --- progress away from a terminal ----------------------------------------------------------------------------------


def test_away_from_a_terminal_progress_is_a_few_plain_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with ConsoleReporter() as reporter:
        assert not reporter.live()
        for done in range(1001):
            reporter.progress("train", done, 1000, "loss 3.21")
        reporter.info("[done] at 100 %")
        reporter.warning("one line was odd")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "train: 0/1,000 (0%), loss 3.21",
        "train: 1,000/1,000 (100%), loss 3.21",
        "[done] at 100 %",
        "warning: one line was odd",
    ]


def test_translation_of_a_file_tells_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with ConsoleReporter() as reporter:
        write_translations(cast(Any, TWO), BytesIO(), "text", 1, 0, reporter)
    assert capsys.readouterr().err.splitlines() == ["lines translated: 1", "lines translated: 3/3 (100%)"]


class FakeTranslator:
    alignment_shift = 0

    def stream(self, blocks: Any, **options: Any) -> Any:
        return ([translation((line, 0.0)) for line in block] for block in blocks)


@pytest.mark.parametrize(
    ("args", "shown"),
    [(["--input", "in", "--output", "out"], True), (["--input", "in"], True), (["Hello."], False), ([], False)],
)
def test_progress_is_shown_for_a_file_and_kept_from_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], shown: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").write_text("eins\nzwei\n", encoding="utf-8")
    chosen = Chosen((RunDir(tmp_path),), FakeTranslator)
    monkeypatch.setattr("nmt.cli.translating.choose_model", lambda *args, **options: chosen)
    result = run("translate", *args)
    assert result.exit_code == 0
    assert ("lines translated: 2/2 (100%)" in result.stderr) is shown
    assert result.stderr == "" or shown


def test_one_model_with_attention_is_enough_for_a_coverage_penalty(tmp_path: Path) -> None:
    runs = {kind: RunDir.create(tmp_path / kind) for kind in ("none", "luong")}
    data = "{src_lang: en, tgt_lang: de, train: {tsv: a}, dev: {tsv: b}}"
    for kind, run in runs.items():
        run.config.write_text(f"data: {data}\nmodel: {{decoder: {{kind: {kind}}}}}\n")
    asked = SearchOptions(coverage_penalty=0.2)
    for first, other in (("none", "luong"), ("luong", "none")):
        assert search_settings(runs[first], asked, runs[other]).coverage_penalty == 0.2
    with pytest.raises(NmtError, match="kind none has no attention"):
        search_settings(runs["none"], asked, runs["none"])
