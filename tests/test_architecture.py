"""The rules that keep the layers apart, checked on the code as it stands."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.paths import ROOT

HEAVY = ("torch", "diffusers", "transformers", "av", "PIL", "numpy")


def loaded_after(statement: str) -> set[str]:
    """Names of the top-level packages loaded by a statement in a fresh interpreter."""
    code = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import app",
        "import app.factory",
        "import app.cli.main",
        "import engine",
        "import engine.registry, engine.plan, engine.types, engine.errors",
    ],
)
def test_the_control_plane_loads_nothing_heavy(statement: str) -> None:
    assert loaded_after(statement).isdisjoint(HEAVY)


def test_the_import_rules_hold() -> None:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint_imports], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_tree_in_the_readme_is_the_tree_on_disk() -> None:
    readme = (ROOT / "README.md").read_text()
    named = set(re.findall(r"^\| `(\w+)/` \|", readme, re.MULTILINE))
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    on_disk = {path.partition("/")[0] for path in listed if "/" in path}
    assert named == {name for name in on_disk if not name.startswith(".")}


def test_every_file_that_the_readme_names_exists() -> None:
    readme = (ROOT / "README.md").read_text()
    named = set(re.findall(r"`((?:app|engine|workers|migrations|examples)/[\w./-]+)`", readme))
    assert named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_one_file_of_each_package_reads_the_environment() -> None:
    readers = {
        str(path.relative_to(ROOT))
        for folder in ("app", "workers", "engine")
        for path in (ROOT / folder).rglob("*.py")
        if reads_environment(path.read_text())
    }
    # The command line hands the environment on as a whole, without looking into it.
    assert readers == {"app/config.py", "app/cli/options.py", "engine/config.py"}


@pytest.mark.parametrize(
    ("code", "is_read"),
    [
        ("os.environ.get('ADLOOM_X')", True),
        ("os.environ['ADLOOM_X']", True),
        ("os.getenv('ADLOOM_X')", True),
        ("source = os.environ if given is None else given", True),
        ("os.environ.setdefault('TORCHINDUCTOR_CACHE_DIR', folder)", False),
        ("os.environ['TOKENIZERS_PARALLELISM'] = 'false'", False),
    ],
)
def test_the_search_for_readers_tells_reads_from_writes(code: str, is_read: bool) -> None:
    assert reads_environment(code) is is_read


def reads_environment(source: str) -> bool:
    """Whether it takes anything from the environment; setting a library's variable is no read."""
    tree = ast.parse(source)
    written = {
        id(node.value)
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr == "setdefault")
        or (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store))
    }
    return any(
        ast.unparse(node) in ("os.environ", "os.getenv") and id(node) not in written
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
    )


def test_only_the_jobs_service_writes_the_state_of_a_render_job() -> None:
    writers = {
        str(path.relative_to(ROOT))
        for folder in ("app", "workers")
        for path in (ROOT / folder).rglob("*.py")
        if writes_job_state(path.read_text())
    }
    assert writers == {"app/services/jobs.py"}


@pytest.mark.parametrize(
    ("code", "is_write"),
    [
        ("job.state = JobState.RUNNING", True),
        ("update(RenderJob).where(x).values(state=JobState.FAILED)", True),
        ("update(RenderJob).values({RenderJob.state: 'failed'})", True),
        ("RenderJob(state=JobState.QUEUED)", True),
        ("session.execute(insert(RenderJob), rows)", True),
        ("copy_rows(session, 'render_jobs', columns, rows)", True),
        ("text('UPDATE render_jobs SET lease_token = 1, state = :s')", True),
        ("f'WITH x AS (SELECT 1) UPDATE render_jobs AS j SET state = 1 WHERE {y}'", True),
        ("update(RenderJob).values(lease_token=1)", False),
        ("update(Batch).values(state=BatchState.RUNNING)", False),
        ("batch.state = BatchState.RUNNING", False),
        ("select(RenderJob).where(RenderJob.state == JobState.QUEUED)", False),
        ("text('UPDATE render_jobs SET priority = 1 WHERE state = 2')", False),
    ],
)
def test_the_search_for_writers_tells_writes_from_reads(code: str, is_write: bool) -> None:
    assert writes_job_state(code) is is_write


def writes_job_state(source: str) -> bool:
    return any(_is_write(node) for node in ast.walk(ast.parse(source)))


def _is_write(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        names = {ast.unparse(target) for target in node.targets}
        return any(name.endswith("job.state") for name in names) or (
            any(name.endswith(".state") for name in names) and "JobState" in ast.unparse(node.value)
        )
    if isinstance(node, ast.Call):
        text = ast.unparse(node)
        called = ast.unparse(node.func)
        has_state = any(keyword.arg == "state" for keyword in node.keywords)
        if called == "RenderJob":
            return has_state
        if called in ("insert", "copy_rows"):
            return "RenderJob" in text or "'render_jobs'" in text
        if called.endswith(".values") and "update(RenderJob)" in called:
            return has_state or "RenderJob.state:" in text
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _is_sql_write(node.value)
    if isinstance(node, ast.JoinedStr):
        return _is_sql_write(ast.unparse(node))
    return False


def _is_sql_write(text: str) -> bool:
    for assignments in re.findall(
        r"UPDATE\s+render_jobs\b.*?\bSET\b(.*?)(?:\bFROM\b|\bWHERE\b|\bRETURNING\b|$)",
        text,
        re.DOTALL | re.IGNORECASE,
    ):
        if re.search(r"\bstate\s*=", assignments):
            return True
    return bool(re.search(r"INSERT\s+INTO\s+render_jobs", text, re.IGNORECASE))
